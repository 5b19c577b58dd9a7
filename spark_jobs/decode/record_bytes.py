"""Records of one or more batches in one buffer, and where each record starts.

Each record has its length first, so the starts are found by following lengths. Many batches are
followed in step, with one numpy call for the next record of all of them; few batches are followed
one by one in Python. Negative short lengths are detected later, when all lengths are parsed at
once. Each step moves forward, whatever the bytes are.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from logbroker.errors import CorruptBatch
from logbroker.records.varint import read_varint
from spark_jobs.decode.batch_table import BatchTable, UnreadableBatch
from spark_jobs.decode.batches import PlainBatches
from spark_jobs.decode.varints import PADDING, Flags, Longs

_RECORD_BYTES_MIN: Final = 7
"""One byte each for length, attributes, time, offset, null key, null value and header count."""

_BATCHES_IN_STEP_MIN: Final = 50
"""The mean over all rounds: a round costs as much as following this many records in Python."""


class RecordBytes(NamedTuple):
    """Consecutive records in `data`, which ends with `PADDING`.

    `starts` are their positions, and `end` is after the last one. They belong to `batches`, whose
    records begin at `bodies`; `counts` has the number of records of each.
    """

    data: bytes
    starts: Longs
    end: int
    batches: BatchTable
    bodies: Longs
    counts: Longs
    has_last: bool
    """Whether the last record of the last batch is included."""

    def check(self, is_bad: Flags, ends: Longs, fault: str) -> None:
        """Raise the error for the first bad record; `ends` are the records' ends.

        Raises:
            UnreadableBatch: a record is bad.
        """
        if is_bad.any():
            raise self.fault(int(ends[is_bad.argmax()]), fault)

    def fault(self, end: int, fault: str) -> UnreadableBatch:
        """The error for the batch of the record that ends at `end`."""
        index = int(np.searchsorted(self.bodies, end - 1, side="right")) - 1
        return self.batches.fault(index, fault)


_WRONG_COUNT: Final = "record count or record lengths are wrong"


def record_bytes(batches: PlainBatches, bytes_max: int) -> Iterator[RecordBytes]:
    """The records of `batches` at once, or those of a single batch in parts of `bytes_max`.

    A part ends with a whole record, so it may exceed the size by that record.

    Raises:
        UnreadableBatch: a batch has other numbers of records or bytes than stated.
    """
    sizes = np.array([len(body) for body in batches.bodies], np.int64)
    # Checked before memory is allocated for the stated number of records.
    is_bad = batches.table.record_counts * _RECORD_BYTES_MIN > sizes
    if is_bad.any():
        raise batches.table.fault(int(is_bad.argmax()), _WRONG_COUNT)
    data = b"".join([*batches.bodies, PADDING])
    if len(sizes) == 1:
        yield from _parts(data, batches.table, bytes_max)
    else:
        yield _all_of(data, batches.table, np.cumsum(sizes))


def _all_of(data: bytes, batches: BatchTable, ends: Longs) -> RecordBytes:
    counts = batches.record_counts
    bodies = np.concatenate(([0], ends[:-1]))
    starts = None
    if counts.sum() >= counts.max() * _BATCHES_IN_STEP_MIN:
        starts = walk_in_step(data, counts, bodies, ends)
    if starts is None:
        starts = _walk_each(data, batches, bodies, ends)
    return RecordBytes(data, starts, int(ends[-1]), batches, bodies, counts, has_last=True)


def _walk_each(data: bytes, batches: BatchTable, bodies: Longs, ends: Longs) -> Longs:
    starts: list[int] = []
    counts = batches.record_counts.tolist()
    spans = zip(bodies.tolist(), ends.tolist(), strict=True)
    for index, (body, end) in enumerate(spans):
        found, position = _walk(data, body, end, batches, index)
        if len(found) != counts[index] or position != end:
            raise batches.fault(index, _WRONG_COUNT)
        starts += found
    return _longs(starts)


def _parts(data: bytes, batch: BatchTable, bytes_max: int) -> Iterator[RecordBytes]:
    position, end, left = 0, len(data) - len(PADDING), int(batch.record_counts[0])
    has_last = False
    while not has_last:
        starts, position = _walk(data, position, min(position + bytes_max, end), batch, 0)
        left -= len(starts)
        has_last = position >= end
        if position > end or left < 0 or (has_last and left):
            raise batch.fault(0, _WRONG_COUNT)
        here = np.zeros(1, np.int64), np.array([len(starts)])
        yield RecordBytes(data, _longs(starts), position, batch, *here, has_last)


def _walk(
    data: bytes, begin: int, end: int, batches: BatchTable, index: int
) -> tuple[list[int], int]:
    try:
        starts, position = walk(data, begin, end)
    except CorruptBatch as error:
        raise batches.fault(index, str(error)) from None
    # Checked before millions of tiny records are put in twenty columns.
    if len(starts) * _RECORD_BYTES_MIN > position - begin:
        raise batches.fault(index, "records are too short")
    return starts, position


def _longs(numbers: list[int]) -> Longs:
    return np.fromiter(numbers, np.int64, len(numbers))


def walk(data: bytes, position: int, end: int) -> tuple[list[int], int]:
    """The starts of the records that begin in [`position`, `end`), and the end of the last one.

    Raises:
        CorruptBatch: a length of three or more bytes is negative or exceeds 32 bits.
    """
    starts: list[int] = []
    add = starts.append
    while position < end:
        add(position)
        if (low := data[position]) < 0x80:
            position += 1 + (low >> 1)
        elif (high := data[position + 1]) < 0x80:
            # 2 + (high << 7 | low - 128) / 2, as in `_steps`.
            position += (high << 6) + (low >> 1) - 62
        else:
            position = _end_of_long_record(data, position)
    return starts, position


def _end_of_long_record(data: bytes, position: int) -> int:
    length, body = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"a record has length {length}")
    return body + length


def walk_in_step(data: bytes, counts: Longs, bodies: Longs, ends: Longs) -> Longs | None:
    """The starts of all batches' records, or None if this method cannot determine them.

    A batch has `counts` records from `bodies` to `ends`, and batches are consecutive. The result is
    None for lengths of three or more bytes, and for batches with wrong counts.
    """
    words = np.ndarray(shape=(len(data) - 1,), dtype="<u2", buffer=data, strides=(1,))
    by_count = np.argsort(-counts, kind="stable")
    batches_left = np.searchsorted(-counts[by_count], -np.arange(counts.max(initial=0)))
    slots = (np.cumsum(counts) - counts)[by_count]
    positions = bodies[by_count]
    starts = np.empty(counts.sum(), np.int64)
    for nth, batches in enumerate(batches_left.tolist()):
        here = positions[:batches]
        starts[slots[:batches] + nth] = here
        here += _STEPS[words[here]]
        np.minimum(here, len(words) - 1, out=here)
    return starts if np.array_equal(positions, ends[by_count]) else None


def _steps() -> npt.NDArray[np.int64]:
    """Bytes to the next record, by the first two bytes of a record as a little-endian number."""
    low, high = np.arange(2**16) & 0xFF, np.arange(2**16) >> 8
    of_one_byte = 1 + (low >> 1)
    of_two_bytes = np.where(high < 0x80, 2 + (high << 6 | (low & 0x7F) >> 1), _TOO_LONG)
    return cast("npt.NDArray[np.int64]", np.where(low < 0x80, of_one_byte, of_two_bytes))


_TOO_LONG: Final = 2**31
"""Leads past the end of every batch."""

_STEPS: Final = _steps()
