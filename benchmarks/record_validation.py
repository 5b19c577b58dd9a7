"""Measures the validation of records before they are stored, in messages per second.

The baseline is the CRC of the same batch, or its decompression: the broker does both without
validation, too, or cannot do without. Each figure is that of one thread.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.frames import batch_of
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line
from logbroker.records import validation, validator
from logbroker.records.batch import HEADER_BYTES, crc_matches, read_header
from logbroker.records.compression import Codec, compress
from logbroker.records.validator import decompress_records

TIME_MS: Final = 1_700_000_000_000
BATCHES: Final = {"1": 1, "50": 50, "1 MB": 4_700}
CODECS: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)

Rates = dict[str, tuple[str, float, float]]
"""The name of the baseline, the rate and the rate of the baseline, by the name of the line."""


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round; writes nothing to `folder`."""
    assert folder.is_dir()
    rounds = [_round(scale.case_s / 4) for _ in range(scale.rounds)]
    return [
        Line(
            name,
            median(each[name][1] for each in rounds),
            "msg/s",
            Baseline(baseline, median(each[name][2] for each in rounds)),
        )
        for name, (baseline, _, _) in rounds[0].items()
    ]


def _round(seconds: float) -> Rates:
    found: Rates = {}
    forms = {"pure": validation.validate_records}
    if validator.IS_COMPILED:
        forms = {"compiled": validator.validate_records} | forms
    for form, function in forms.items():
        for size, records in BATCHES.items():
            batch = memoryview(batch_of(records, TIME_MS))
            validate = partial(_validate, function, batch, records)
            found[f"batch {size}, {form}"] = (
                "CRC-32C of the batch",
                records * _rate(validate, seconds),
                records * _rate(partial(_check_crc, batch), seconds),
            )
    for codec in CODECS:
        found |= _compressed(codec, seconds)
    return found


def _compressed(codec: Codec, seconds: float) -> Rates:
    records = BATCHES["1 MB"]
    plain = batch_of(records, TIME_MS)
    batch = memoryview(plain[:HEADER_BYTES] + compress(codec, plain[HEADER_BYTES:]))

    def decompress() -> memoryview:
        return decompress_records(batch, codec)[0]

    def validate() -> None:
        found = validator.validate_records(decompress(), 0, records, TIME_MS, 0, 2 * TIME_MS, False)
        assert found >= TIME_MS

    rates = records * _rate(validate, seconds), records * _rate(decompress, seconds)
    return {f"batch 1 MB, {codec.name.lower()}": ("decompression", *rates)}


def _validate(validate: Callable[..., int], batch: memoryview, records: int) -> None:
    found = validate(batch, HEADER_BYTES, records, TIME_MS, 0, 2 * TIME_MS, False)
    assert found >= TIME_MS


def _check_crc(batch: memoryview) -> None:
    assert crc_matches(batch, read_header(batch).crc)


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Return calls per second; calls at least twice."""
    calls, start, taken = 0, time.perf_counter(), -1.0
    while taken < seconds:
        call()
        call()
        calls += 2
        taken = time.perf_counter() - start
    return calls / taken
