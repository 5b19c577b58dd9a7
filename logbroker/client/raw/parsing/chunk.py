"""Selects the whole batches of an offset range from fetched bytes."""

import struct
from typing import Final, NamedTuple

from logbroker.client.errors import DamagedFraming, FetchFailed
from logbroker.records.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_V2
from logbroker.wire.fetch_client import AbortedTransaction

_FIELDS: Final = struct.Struct(">qi4xb6xi")
"""The fields baseOffset, batchLength, magic and lastOffsetDelta of a batch."""


class RawChunk(NamedTuple):
    """Whole batches of one partition as stored by the broker; CRCs are not checked.

    `records` is read-only memory of its own. The first batch may start before `first_wanted`, and
    the last may reach `end` or beyond. `next_offset` is the start of the next chunk, at most `end`.
    Log offsets that the broker's version does not return are -1. `aborted` are the transactions
    whose records must be ignored.
    """

    records: memoryview
    first_wanted: int
    end: int
    next_offset: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    aborted: tuple[AbortedTransaction, ...]


class Cut(NamedTuple):
    """The bytes `[first_byte, end_byte)` are wanted; `next_offset` follows them."""

    first_byte: int
    end_byte: int
    next_offset: int


def cut_to_range(records: memoryview, start: int, end: int) -> Cut:
    """Return the whole batches of `records` that overlap the offsets `[start, end)`.

    The result ends before a damaged batch that is not the first one. A truncated batch at the end
    is ignored. If `next_offset` equals `start`, there is no batch.

    Raises:
        DamagedFraming: the first batch has another format, or a wrong length.
        FetchFailed: the batches are not consecutive.
    """
    first_byte = position = 0
    next_offset = start
    size = len(records)
    while size - position >= HEADER_BYTES:
        base_offset, batch_length, magic, last_delta = _FIELDS.unpack_from(records, position)
        if batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES or last_delta < 0:
            if next_offset > start:
                break
            raise DamagedFraming(next_offset, f"malformed batch at offset {next_offset}")
        if magic != MAGIC_V2:
            if next_offset > start:
                break
            raise DamagedFraming(
                start,
                f"offset {base_offset} has message format {magic}; supported: {MAGIC_V2},"
                " as written by Kafka 0.11 and later",
            )
        batch_end = position + LENGTH_PREFIX_BYTES + batch_length
        if batch_end > size:
            break
        if base_offset >= end:
            return Cut(first_byte, position, end)
        position = batch_end
        if base_offset + last_delta < start:
            first_byte = position
        elif next_offset > start and base_offset < next_offset:
            raise FetchFailed(f"offset {base_offset} follows offset {next_offset - 1}")
        else:
            next_offset = base_offset + last_delta + 1
    return Cut(first_byte, position, min(next_offset, end))
