"""Which of the bytes that a broker sent are whole batches that somebody wanted."""

import struct
from typing import Final, NamedTuple

from logbroker.client.errors import FetchFailed
from logbroker.records.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_V2
from logbroker.wire.fetch_client import AbortedTransaction

_FIELDS: Final = struct.Struct(">qi4xb6xi")
"""baseOffset, batchLength, magic and lastOffsetDelta of a batch."""


class RawChunk(NamedTuple):
    """Whole batches of one partition, as the broker keeps them; CRCs are not checked yet.

    `records` is memory of its own, read-only, that stays as it is for as long as somebody holds
    it. The first batch may begin before `first_wanted`, and the last may reach to `end` or behind
    it. `next_offset` is the offset that the next chunk begins with, and `end` at the most.
    Of the log's own offsets, those that the broker's version does not tell are -1.
    `aborted` has the transactions whose records, if there are any here, do not count.
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
    """The bytes `[first_byte, end_byte)` are wanted, and `next_offset` comes behind them."""

    first_byte: int
    end_byte: int
    next_offset: int


def cut_to_range(records: memoryview, start: int, end: int) -> Cut:
    """The whole batches of `records` that reach into the offsets `[start, end)`.

    A cut batch at the end is left out. Where `next_offset` is still `start`, there are none.

    Raises:
        FetchFailed: the batches are of an old format, or do not follow each other.
    """
    first_byte = position = 0
    next_offset = start
    size = len(records)
    while size - position >= HEADER_BYTES:
        base_offset, batch_length, magic, last_delta = _FIELDS.unpack_from(records, position)
        if batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES or last_delta < 0:
            raise FetchFailed(f"behind offset {next_offset} there is no batch where one should be")
        if magic != MAGIC_V2:
            raise FetchFailed(
                f"offset {base_offset} is in message format {magic}; only {MAGIC_V2} is read,"
                " which Kafka writes from 0.11 on"
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
            raise FetchFailed(f"offset {base_offset} comes behind offset {next_offset - 1}")
        else:
            next_offset = base_offset + last_delta + 1
    return Cut(first_byte, position, min(next_offset, end))
