"""Measures the decoding of record batches to Arrow columns, in records per CPU second.

CRCs are checked; one thread decodes, without broker and Spark. The baseline decodes the same bytes
with the plain decoder, which creates an object for each record. Values have 200 bytes, half of them
random, so that compression is realistic.
"""

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, at_least
from logbroker.records.batch import crc_matches, iter_batches
from logbroker.records.compression import Codec
from logbroker.records.record import Headers, NewRecord, decode_records, encode_batch
from spark_jobs.decode import decode

RECORDS: Final = 100_000
TIME_MS: Final = 1_700_000_000_000
COLUMNS: Final = frozenset({"key", "value", "headers"})
HEADERS: Final[Headers] = (
    ("event-id", b"evt_0123456789abcdef"),
    ("event-type", b"follow.created"),
    ("origin", b"ams"),
    ("server", b"host-17"),
    ("audit", bytes(range(24))),
)
"""The headers of records of `delivery_log`."""


class Case(NamedTuple):
    """Records per batch, compression, headers, and the target in records/s."""

    name: str
    batch_records: int
    codec: Codec
    headers: Headers
    target: float | None


CASES: Final = (
    Case("100 records per batch", 100, Codec.NONE, (), 1_200_000),
    Case("5,000 records per batch", 5_000, Codec.NONE, (), 1_200_000),
    Case("100 records per batch, snappy", 100, Codec.SNAPPY, (), 1_200_000),
    Case("100 records per batch, zstd", 100, Codec.ZSTD, (), None),
    Case("100 records per batch, snappy, 5 headers", 100, Codec.SNAPPY, HEADERS, 500_000),
    Case("1 record per batch", 1, Codec.NONE, (), None),
)


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round; writes nothing to `folder`."""
    assert folder.is_dir()
    logs = [_log(case) for case in CASES]
    rounds = [[_rates(log, scale.case_s) for log in logs] for _ in range(scale.rounds)]
    return [
        line
        for case, log, figures in zip(CASES, logs, zip(*rounds, strict=True), strict=True)
        for line in _lines(case, log, figures)
    ]


def _log(case: Case) -> bytes:
    source = random.Random(case.name)
    edges = range(0, RECORDS + 1, case.batch_records)
    return b"".join(
        encode_batch(
            [_record(source, n, case.headers) for n in range(first, last)],
            codec=case.codec,
            base_offset=first,
        )
        for first, last in pairwise(edges)
    )


def _record(source: random.Random, n: int, headers: Headers) -> NewRecord:
    return NewRecord(TIME_MS + n, b"user-%d" % n, source.randbytes(100) + bytes(100), headers)


def _rates(log: bytes, seconds: float) -> tuple[float, float]:
    """Return the records/s of the Arrow decoder and of the plain decoder."""
    return _rate(lambda: _decode_to_arrow(log), seconds), _rate(
        lambda: _decode_to_objects(log), seconds
    )


def _rate(read: Callable[[], int], seconds: float) -> float:
    count, start_s = 0, time.process_time()
    while time.process_time() - start_s < seconds:
        count += read()
    return count / (time.process_time() - start_s)


def _decode_to_arrow(log: bytes) -> int:
    count = sum(len(chunk.offsets) for chunk in decode(log, start=0, end=RECORDS, wanted=COLUMNS))
    assert count == RECORDS
    return count


def _decode_to_objects(log: bytes) -> int:
    count = 0
    for header, batch in iter_batches(log):
        assert crc_matches(batch, header.crc)
        count += len(decode_records(batch))
    return count


def _lines(case: Case, log: bytes, figures: Sequence[tuple[float, float]]) -> list[Line]:
    arrow, plain = (median(column) for column in zip(*figures, strict=True))
    target = None if case.target is None else at_least(case.target)
    baseline = Baseline("plain decoder", plain)
    return [
        Line(case.name, arrow, "records/s", baseline, target),
        Line("  size of these batches", arrow * len(log) / RECORDS / 1e6, "MB/s"),
    ]
