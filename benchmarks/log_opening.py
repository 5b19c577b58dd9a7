"""Measures the start of a broker on a large log in seconds, and its memory under reads in MB.

The baseline is a small log. The logs are written by the storage package, batch by batch, flushed
and closed cleanly, as after a broker's stop. Before each start their files are dropped from the
page cache; only the interpreter's files remain cached, for both logs.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.fetch_load import StoredLog, fetch_at_random
from benchmarks.frames import batch_of
from benchmarks.running_broker import RunningBroker, running_broker
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, at_most, share_at_most
from logbroker.config import LogConfig
from logbroker.storage.log_directory import LogDirectory, Owner
from logbroker.storage.partition_log import PartitionLog

TOPIC: Final = "history"
PARTITIONS: Final = 8
BATCH_RECORDS: Final = 50
BATCHES_AT_ONCE: Final = 200
"""Batches per write: some two megabytes, as in a broker under load."""

FLUSH_WRITES: Final = 32
READ_BYTES: Final = 64 * 2**10
READ_CONNECTIONS: Final = 4
MEMORY_RATIO_MAX: Final = 1.2


class Opened(NamedTuple):
    """One start on one log: the time, and the memory under reads."""

    ready_s: float
    resident_mb: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Start on a small and on a large log in turn."""
    opened: dict[int, list[Opened]] = {}
    with (
        _stored(folder, scale.small_log_bytes) as small,
        _stored(folder, scale.large_log_bytes) as large,
    ):
        for _ in range(scale.rounds):
            for log in (small, large):
                opened.setdefault(log.log_bytes, []).append(_open(log, scale.case_s))
    return _lines(opened[large.log_bytes], opened[small.log_bytes], large, small)


class _Stored(NamedTuple):
    """A closed data directory and its logs."""

    data_dir: Path
    log_bytes: int
    logs: list[StoredLog]

    @property
    def name(self) -> str:
        return f"{self.log_bytes / 1e9:.1f} GB"


@contextmanager
def _stored(folder: Path, log_bytes: int) -> Iterator[_Stored]:
    """Write a topic of `log_bytes` to a directory, which is removed at the end."""
    data_dir = folder / f"log-{log_bytes}"
    with running_broker(data_dir) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
    directory = LogDirectory.claim(data_dir)
    directory.load(lambda _: Owner(TOPIC, LogConfig()), _now_ms())
    logs = [
        _fill(directory.logs[TOPIC, partition], log_bytes // PARTITIONS)
        for partition in range(PARTITIONS)
    ]
    directory.close()
    yield _Stored(data_dir, log_bytes, logs)
    shutil.rmtree(data_dir)


def _fill(log: PartitionLog, size_bytes: int) -> StoredLog:
    """Append batches with rising timestamps until the log has its size."""
    batch = batch_of(BATCH_RECORDS, _now_ms())
    many = memoryview(bytearray(batch * BATCHES_AT_ONCE))
    positions = range(0, len(many), len(batch))
    writes = size_bytes // len(many) + 1
    for number in range(writes):
        many[:] = batch_of(BATCH_RECORDS, _now_ms()) * BATCHES_AT_ONCE
        for position in positions:
            log.append(many[position : position + len(batch)], _now_ms())
        log.write()
        if number % FLUSH_WRITES == 0:
            log.advance_high_watermark(log.flush())
    return StoredLog(log.topic, log.partition, len(batch), BATCH_RECORDS, log.log_end_offset)


def _open(stored: _Stored, seconds: float) -> Opened:
    _drop_from_page_cache(stored.data_dir)
    start = time.perf_counter()
    with running_broker(stored.data_dir) as broker:
        ready_s = time.perf_counter() - start
        return Opened(ready_s, _resident_mb_under_reads(broker, stored.logs, seconds))


def _resident_mb_under_reads(broker: RunningBroker, logs: list[StoredLog], seconds: float) -> float:
    fetch_at_random(broker.address, logs, READ_BYTES, READ_CONNECTIONS, seconds)
    return broker.resident_mb()


def _drop_from_page_cache(folder: Path) -> None:
    """Drop the files from the page cache; does nothing on systems that cannot."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _lines(
    large: list[Opened], small: list[Opened], large_log: _Stored, small_log: _Stored
) -> list[Line]:
    ready = Baseline(f"{small_log.name} log", median(each.ready_s for each in small))
    resident = Baseline(f"{small_log.name} log", median(each.resident_mb for each in small))
    name = large_log.name
    large_mb = median(each.resident_mb for each in large)
    return [
        Line(
            f"start to ready, {name}",
            median(each.ready_s for each in large),
            "s",
            ready,
            at_most(1),
        ),
        Line(f"resident under random fetches, {name}", large_mb, "MB", resident, at_most(150)),
        Line(
            "  relative to the small log", large_mb, "MB", resident, share_at_most(MEMORY_RATIO_MAX)
        ),
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
