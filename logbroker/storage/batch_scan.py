"""Iterates over the batches of a segment file, by headers only or with CRC checks."""

import os
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from logbroker.errors import CorruptBatch
from logbroker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    BatchHeader,
)

LOOKUP_READ_BYTES: Final = 16 * 1024
"""One read of a lookup: an index interval and adjacent batches, if they are small."""

CHECK_READ_BYTES: Final = 1024 * 1024
"""One read of a CRC check, and its total memory for batches of any announced size."""

OFFSET_DELTA_MAX: Final = 2**31 - 1
"""Index entries store the offset relative to the segment's base offset in 32 bits."""

NO_LEADER_EPOCH: Final = -1
"""The leader epoch of batches from before Kafka 0.11's epochs."""

BATCH_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


def headers(descriptor: int, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch between two positions.

    `start` is the position of a batch. Records are read only if batches are so small that one
    read of several batches is cheaper.

    Raises:
        CorruptBatch: the bytes at the position of a batch are not a batch.
    """
    chunk, chunk_start = b"", start
    position = start
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = os.pread(descriptor, LOOKUP_READ_BYTES, position), position, 0
        if len(chunk) < HEADER_BYTES:
            raise CorruptBatch(f"the file ends at {position + len(chunk)}, expected {end}")
        header = BatchHeader._make(HEADER.unpack_from(chunk, at))
        if header.batch_length < BATCH_LENGTH_MIN:
            raise CorruptBatch(f"no batch at position {position}: length {header.batch_length}")
        following = position + LENGTH_PREFIX_BYTES + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def intact_headers(
    descriptor: int,
    end: int,
    next_offset: int,
    checked_from: int,
    dense_from: int,
    leader_epoch_max: int,
) -> Iterator[BatchHeader]:
    """Yield the header of each batch of a file up to the first that is not intact.

    A batch is intact if it is whole and continues the offsets (the first has `next_offset`). From
    offset `checked_from` on it must also match its CRC, and its leader epoch, which the CRC does
    not cover, must be from that of the batch before it to `leader_epoch_max`. Below `dense_from`,
    compaction may have removed batches, so offsets may be skipped.
    """
    window = _FileWindow(descriptor, end)
    position, base_offset = 0, next_offset
    leader_epoch = NO_LEADER_EPOCH
    while position + HEADER_BYTES <= end:
        header = BatchHeader._make(HEADER.unpack_from(window.read(position, HEADER_BYTES)))
        is_next = next_offset <= header.base_offset < dense_from or (
            header.base_offset == next_offset
        )
        if not is_next or not _is_plausible(header) or position + header.size > end:
            return
        if header.last_offset - base_offset > OFFSET_DELTA_MAX:
            return
        if header.base_offset >= checked_from:
            if not leader_epoch <= header.leader_epoch <= leader_epoch_max:
                return
            if not window.crc_matches(position, header):
                return
            leader_epoch = header.leader_epoch
        yield header
        position += header.size
        next_offset = header.next_offset


def _is_plausible(header: BatchHeader) -> bool:
    return (
        header.magic == MAGIC_V2
        and header.batch_length >= BATCH_LENGTH_MIN
        and header.last_offset_delta >= 0
    )


class _FileWindow:
    """A buffer of bounded size that moves forward through a file."""

    def __init__(self, descriptor: int, end: int) -> None:
        self._descriptor = descriptor
        self._end = end
        self._buffer = bytearray(min(CHECK_READ_BYTES, end))
        self._start = 0
        self._filled = 0

    def read(self, position: int, size: int) -> memoryview:
        """Return `size` bytes at `position`, up to `CHECK_READ_BYTES`; fewer at the end."""
        if position + size > self._start + self._filled:
            self._filled = os.preadv(self._descriptor, [self._buffer], position)
            self._start = position
        at = position - self._start
        return memoryview(self._buffer)[at : min(at + size, self._filled)]

    def crc_matches(self, position: int, header: BatchHeader) -> bool:
        """Return whether the batch at `position` matches the CRC of its header."""
        crc = 0
        place, end = position + CRC_START, position + header.size
        while place < end:
            part = self.read(place, min(end - place, len(self._buffer)))
            if not part:
                return False
            crc = crc32c(part, crc)
            place += len(part)
        return crc == header.crc
