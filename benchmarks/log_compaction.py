"""Measures the compaction of a log in bytes/s, and what it costs the requests of a broker.

The log is written by the storage package: messages of 200 bytes in batches of 50, with keys of
which a fifth is unique. The baseline of the compaction is reading the same segments and writing
them to a file that is flushed. Requests are measured on another topic of a broker that compacts
such a log, and on the same broker before.
"""

import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.frames import ACKS_LEADER, MESSAGE, batch_of, encode_produce
from benchmarks.produce_load import Load, produce
from benchmarks.running_broker import RunningBroker, running_broker, until
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, share_at_least
from logbroker.config import LogConfig
from logbroker.records.record import NewRecord, encode_batch
from logbroker.storage.log_directory import LogDirectory, Owner
from logbroker.storage.partition_log import PartitionLog

COMPACTED: Final = "changelog"
OTHER: Final = "events"
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(64 * 2**20)}
CONFIG: Final = LogConfig(cleanup_policy="compact", segment_bytes=64 * 2**20)

BATCH_RECORDS: Final = 50
BATCHES_AT_ONCE: Final = 200
RECORDS_PER_KEY: Final = 5
COPY_BYTES: Final = 2**20
LOADED: Final = Load(8, 5, 0.0)
REQUEST_SHARE_MIN: Final = 0.3
"""The interpreter runs one thread at a time, so a compaction takes up to half of it."""


class Compacted(NamedTuple):
    """One compaction: its rate, that of a copy, and requests/s during and before it."""

    bytes_per_s: float
    copied_per_s: float
    requests_per_s: float
    requests_before: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Compact a new log in each round."""
    rounds = [_measure_round(scale, folder) for _ in range(scale.rounds)]
    copied = Baseline("copying the segments", median(each.copied_per_s / 1e6 for each in rounds))
    before = Baseline("before the compaction", median(each.requests_before for each in rounds))
    records = BATCH_RECORDS * len(MESSAGE)
    return [
        Line(
            "compaction, batch 50, 5 records a key",
            median(each.bytes_per_s / 1e6 for each in rounds),
            "MB/s",
            copied,
        ),
        Line(
            "  in messages",
            median(each.bytes_per_s / records * BATCH_RECORDS for each in rounds),
            "msg/s",
        ),
        Line(
            "batch 1, 8 conn x 5, during a compaction",
            median(each.requests_per_s for each in rounds),
            "msg/s",
            before,
            share_at_least(REQUEST_SHARE_MIN),
        ),
    ]


def _measure_round(scale: Scale, folder: Path) -> Compacted:
    with _stored(folder, scale.small_log_bytes) as data_dir:
        copied_per_s = _copy(data_dir)
        options = ["--cleaner-backoff-s", str(4 * scale.case_s), "--file-delete-delay-s", "0"]
        with running_broker(data_dir, options=options) as broker:
            broker.create_topic(OTHER)
            size = sum(path.stat().st_size for path in broker.segments(COMPACTED, ".log")[:-1])
            requests_before = _requests_per_s(broker, scale.case_s)
            until(lambda: bool(broker.segments(COMPACTED, ".log.cleaned")), "a compaction")
            start = time.perf_counter()
            requests_per_s = _requests_per_s(broker, scale.case_s)
            until(lambda: _is_compacted(broker), "the end of the compaction")
            seconds = time.perf_counter() - start
            return Compacted(size / seconds, copied_per_s, requests_per_s, requests_before)


def _requests_per_s(broker: RunningBroker, seconds: float) -> float:
    batch = batch_of(1, time.time_ns() // 1_000_000)
    request = encode_produce(OTHER, batch, 1, ACKS_LEADER)
    sent = produce(broker.address, request, LOADED._replace(seconds=seconds))
    return sent.requests / sent.seconds


def _is_compacted(broker: RunningBroker) -> bool:
    """Report whether the cleaner has recorded that it is done; checkpoints are written later."""
    return not broker.segments(COMPACTED, ".log.cleaned") and not broker.segments(
        COMPACTED, ".log.swap"
    )


@contextmanager
def _stored(folder: Path, log_bytes: int) -> Iterator[Path]:
    """Write a compacted topic of `log_bytes` to a directory, which is removed at the end."""
    data_dir = folder / "compaction"
    with running_broker(data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(COMPACTED, 1, config=SETTINGS)])[COMPACTED].result()
    directory = LogDirectory.claim(data_dir)
    directory.load(lambda _: Owner(COMPACTED, CONFIG), _now_ms())
    _fill(directory.logs[COMPACTED, 0], log_bytes)
    directory.close()
    yield data_dir
    shutil.rmtree(data_dir)


def _fill(log: PartitionLog, size_bytes: int) -> None:
    keys = size_bytes // len(MESSAGE) // RECORDS_PER_KEY
    choose = random.Random(1).randrange  # no secret
    while log.size_bytes < size_bytes:
        for _ in range(BATCHES_AT_ONCE):
            records = [
                NewRecord(_now_ms(), b"key-%08d" % choose(keys), MESSAGE)
                for _ in range(BATCH_RECORDS)
            ]
            log.append(memoryview(bytearray(encode_batch(records))), _now_ms())
        log.write()
    log.advance_high_watermark(log.flush())


def _copy(data_dir: Path) -> float:
    """Return the bytes/s at which the segments are copied to a flushed file."""
    paths = sorted((data_dir / f"{COMPACTED}-0").glob("*.log"))
    start, size = time.perf_counter(), 0
    for path in paths:
        copy = data_dir / "copy"
        with path.open("rb") as source, copy.open("wb") as target:
            while piece := source.read(COPY_BYTES):
                target.write(piece)
                size += len(piece)
            target.flush()
            os.fsync(target.fileno())
        copy.unlink()
    return size / (time.perf_counter() - start)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
