"""The headers of all batches in a chunk of the log, as columns: see `logbroker.records.batch`."""

import struct
from typing import Final, NamedTuple

import numpy as np

from logbroker.errors import CorruptBatch
from logbroker.records.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
)
from spark_jobs.decode.varints import Flags, Longs

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES

_BASE_OFFSET: Final = struct.Struct(">q")
_BATCH_LENGTH: Final = struct.Struct(">i")
_BATCH_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
"""The position of the magic byte in all versions of the format, since magic 0."""

_OFFSET_MAX: Final = 2**63 - 1


class UnreadableBatch(CorruptBatch):
    """A batch whose records cannot be read; other batches may be intact."""

    def __init__(self, base_offset: int, next_offset: int, fault: str) -> None:
        super().__init__(f"batch at {base_offset}: {fault}")
        self.base_offset = base_offset
        self.next_offset = next_offset
        """The offset after it."""


class BatchTable(NamedTuple):
    """One element per batch, in order; a batch is from `positions` to `ends` in its chunk."""

    positions: Longs
    ends: Longs
    base_offsets: Longs
    last_offset_deltas: Longs
    attributes: Longs
    crcs: Longs
    base_timestamps: Longs
    max_timestamps: Longs
    producer_ids: Longs
    record_counts: Longs

    @property
    def next_offsets(self) -> Longs:
        """The offset after the last record of each batch."""
        return self.base_offsets + self.last_offset_deltas + 1

    @property
    def is_append_time(self) -> Flags:
        """Whether all records have the batch's `max_timestamps`, the broker's append time."""
        return self._has(TIMESTAMP_TYPE_FLAG)

    @property
    def is_control(self) -> Flags:
        """Whether the batch is a marker without data."""
        return self._has(CONTROL_FLAG)

    @property
    def is_transactional(self) -> Flags:
        """Whether the batch belongs to a transaction."""
        return self._has(TRANSACTIONAL_FLAG)

    def fault(self, index: int, fault: str) -> UnreadableBatch:
        """The error for a batch that matches its CRC."""
        return self._unreadable(index, fault, self.next_offsets[index])

    def crc_fault(self, index: int) -> UnreadableBatch:
        """The error for a batch that does not match its CRC.

        Its number of offsets may be wrong, too, so the next batch's base offset is used if known.
        """
        is_last = index + 1 == len(self.base_offsets)
        following = self.next_offsets[index] if is_last else self.base_offsets[index + 1]
        return self._unreadable(index, "CRC mismatch", following)

    def _unreadable(self, index: int, fault: str, next_offset: np.int64) -> UnreadableBatch:
        return UnreadableBatch(int(self.base_offsets[index]), int(next_offset), fault)

    def _has(self, flag: int) -> Flags:
        return (self.attributes & flag).astype(np.bool_)

    def part(self, start: int, end: int) -> "BatchTable":
        """The batches with indexes [start, end)."""
        return BatchTable(*(column[start:end] for column in self))


def read_table(view: memoryview) -> BatchTable:
    """The headers of all complete batches in `view`; a truncated last one is omitted.

    Raises:
        CorruptBatch: a batch is older than magic 2, or has an invalid header.
    """
    positions = np.array(_positions(view), np.int64)
    positions_max = max(len(view) - HEADER_BYTES + 1, 0)
    headers = np.ndarray((positions_max,), _HEADER, view, strides=(1,))[positions]
    table = BatchTable(
        positions,
        positions + LENGTH_PREFIX_BYTES + headers["batch_length"],
        *(headers[name].astype(np.int64) for name in _COLUMNS),
    )
    _check(table)
    return table


_COLUMNS: Final = (
    "base_offset",
    "last_offset_delta",
    "attributes",
    "crc",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "record_count",
)


def _positions(view: memoryview) -> list[int]:
    """The start of each batch, found by their lengths."""
    positions: list[int] = []
    position = 0
    while len(view) - position > _MAGIC_AT:
        # Checked first: batches before magic 2 may be shorter than this header.
        if view[position + _MAGIC_AT] != MAGIC_V2:
            magic = view[position + _MAGIC_AT]
            raise _fault(view, position, f"has magic {magic}; allowed is {MAGIC_V2}")
        (length,) = _BATCH_LENGTH.unpack_from(view, position + _BATCH_LENGTH_AT)
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise _fault(view, position, f"has length {length}")
        after = position + LENGTH_PREFIX_BYTES + length
        if after > len(view):
            break
        positions.append(position)
        position = after
    return positions


def _fault(view: memoryview, position: int, fault: str) -> CorruptBatch:
    (base_offset,) = _BASE_OFFSET.unpack_from(view, position)
    return CorruptBatch(f"batch at {base_offset} {fault}")


def _check(table: BatchTable) -> None:
    """Reject headers with impossible offsets or counts, before memory is allocated for them."""
    base_offsets, deltas = table.base_offsets, table.last_offset_deltas
    _reject(table, base_offsets < 0, "has a negative offset")
    _reject(
        table,
        (deltas < 0) | (base_offsets >= _OFFSET_MAX - deltas),
        "has an invalid last offset",
    )
    is_overlapping = np.zeros(len(base_offsets), np.bool_)
    is_overlapping[1:] = base_offsets[1:] < table.next_offsets[:-1]
    _reject(table, is_overlapping, "overlaps the previous one")
    _reject(table, table.record_counts < 0, "has a negative number of records")


def _reject(table: BatchTable, is_bad: Flags, fault: str) -> None:
    if is_bad.any():
        base_offset = table.base_offsets[is_bad.argmax()]
        raise CorruptBatch(f"batch at {base_offset} {fault}")
