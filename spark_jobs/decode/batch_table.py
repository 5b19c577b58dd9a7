"""The headers of all batches of a chunk of log, as columns: see `logbroker.records.batch`."""

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
"""Where every version of the format, back to magic 0, has its magic."""

_OFFSET_MAX: Final = 2**63 - 1


class UnreadableBatch(CorruptBatch):
    """A batch whose records cannot be had, between others that may be well."""

    def __init__(self, base_offset: int, next_offset: int, fault: str) -> None:
        super().__init__(f"batch at {base_offset}: {fault}")
        self.base_offset = base_offset
        self.next_offset = next_offset
        """Where to read on behind it."""


class BatchTable(NamedTuple):
    """An element a batch, in their order; batches lie from `positions` to `ends` in their chunk."""

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
        """Offsets just past the last record of each."""
        return self.base_offsets + self.last_offset_deltas + 1

    @property
    def is_append_time(self) -> Flags:
        """Whether all its records have its `max_timestamps`, the broker's time of append."""
        return self._has(TIMESTAMP_TYPE_FLAG)

    @property
    def is_control(self) -> Flags:
        """Whether it holds a marker, not data."""
        return self._has(CONTROL_FLAG)

    @property
    def is_transactional(self) -> Flags:
        """Whether it belongs to a transaction."""
        return self._has(TRANSACTIONAL_FLAG)

    def fault(self, index: int, fault: str) -> UnreadableBatch:
        """The error that names a batch, which matches its CRC."""
        return self._unreadable(index, fault, self.next_offsets[index])

    def crc_fault(self, index: int) -> UnreadableBatch:
        """The error that names a batch, which does not match its CRC.

        Then the number of its offsets may be wrong, too: where the next one has come along, that
        tells better where it begins.
        """
        is_last = index + 1 == len(self.base_offsets)
        behind = self.next_offsets[index] if is_last else self.base_offsets[index + 1]
        return self._unreadable(index, "it does not match its CRC", behind)

    def _unreadable(self, index: int, fault: str, next_offset: np.int64) -> UnreadableBatch:
        return UnreadableBatch(int(self.base_offsets[index]), int(next_offset), fault)

    def _has(self, flag: int) -> Flags:
        return (self.attributes & flag).astype(np.bool_)

    def part(self, start: int, end: int) -> "BatchTable":
        """Those of the indexes [start, end)."""
        return BatchTable(*(column[start:end] for column in self))


def read_table(view: memoryview) -> BatchTable:
    """The headers of all whole batches in `view`; one that is cut by its end is left out.

    Raises:
        CorruptBatch: a batch is older than magic 2, or its header cannot be.
    """
    positions = np.array(_positions(view), np.int64)
    rooms = max(len(view) - HEADER_BYTES + 1, 0)
    headers = np.ndarray((rooms,), _HEADER, view, strides=(1,))[positions]
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
    """Where the batches begin: each says how long it is."""
    positions: list[int] = []
    position = 0
    while len(view) - position > _MAGIC_AT:
        # Before the rest of the header: batches of before magic 2 may be shorter than one.
        if view[position + _MAGIC_AT] != MAGIC_V2:
            magic = view[position + _MAGIC_AT]
            raise _fault(view, position, f"has magic {magic}; allowed is {MAGIC_V2}")
        (length,) = _BATCH_LENGTH.unpack_from(view, position + _BATCH_LENGTH_AT)
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise _fault(view, position, f"announces {length} bytes")
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
    """Refuse headers that would lead to offsets, or to memory, that cannot be."""
    base_offsets, deltas = table.base_offsets, table.last_offset_deltas
    _refuse(table, base_offsets < 0, "has a negative offset")
    _refuse(
        table,
        (deltas < 0) | (base_offsets >= _OFFSET_MAX - deltas),
        "has a last offset that is none",
    )
    is_behind = np.zeros(len(base_offsets), np.bool_)
    is_behind[1:] = base_offsets[1:] < table.next_offsets[:-1]
    _refuse(table, is_behind, "does not follow the one before")
    _refuse(table, table.record_counts < 0, "announces a negative number of records")


def _refuse(table: BatchTable, is_bad: Flags, fault: str) -> None:
    if is_bad.any():
        base_offset = table.base_offsets[is_bad.argmax()]
        raise CorruptBatch(f"batch at {base_offset} {fault}")
