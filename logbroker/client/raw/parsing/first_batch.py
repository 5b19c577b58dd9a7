"""Checks the batch at an offset in fetched bytes, and finds where the next batch begins."""

from collections.abc import Collection
from typing import NamedTuple

from logbroker.errors import CorruptBatch
from logbroker.records.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_matches,
    read_header,
)
from logbroker.records.record import decode_records
from logbroker.wire.fetch_client import AbortedTransaction

_LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX_BYTES


class FirstBatch(NamedTuple):
    """The batch at an offset. `problem` says why it cannot be read, None if it can."""

    problem: str | None
    base_offset: int
    following: int | None
    """The base offset of the next batch; None if the fetched bytes do not show it."""

    announced: int | None
    """The offset after the batch by its own header, which may be damaged; None if implausible."""

    has_records: bool
    """Whether a consumer gets a record of it: it is readable, committed and no marker."""


def check_first_batch(
    records: memoryview, offset: int, aborted: Collection[AbortedTransaction] = ()
) -> FirstBatch:
    """Check the batch with `offset` in `records`, which begin with this batch or an earlier one.

    `records` may be read-only; a response always has its first batch whole (KIP-74).
    """
    position = 0
    while True:
        try:
            header = read_header(records, position)
        except CorruptBatch as error:
            return FirstBatch(str(error), offset, None, None, False)
        end = position + header.size
        if header.batch_length < _LENGTH_MIN or end > len(records):
            what = f"its length is {header.batch_length}; {len(records) - position} bytes follow"
            return FirstBatch(what, offset, None, _announced(header, offset), False)
        is_before = header.magic == MAGIC_V2 and header.last_offset < offset
        if not is_before or end + HEADER_BYTES > len(records):
            break
        position = end
    problem = _problem(records[position:end], header)
    following = _following(records, end, header, offset)
    has_records = problem is None and _has_records(header, aborted)
    return FirstBatch(
        problem, header.base_offset, following, _announced(header, offset), has_records
    )


def _problem(batch: memoryview, header: BatchHeader) -> str | None:
    if header.magic != MAGIC_V2:
        return f"its message format is {header.magic}; supported: {MAGIC_V2}"
    if not crc_matches(batch, header.crc):
        return "its CRC does not match"
    if header.is_control:
        return None
    try:
        decode_records(batch)
    except CorruptBatch as error:
        return str(error)
    return None


def _following(records: memoryview, position: int, header: BatchHeader, offset: int) -> int | None:
    """The base offset of the batch at `position`, if it looks like the one after `header`."""
    if position + HEADER_BYTES > len(records):
        return None
    after = read_header(records, position)
    is_batch = (
        after.magic == MAGIC_V2
        and after.batch_length >= _LENGTH_MIN
        and after.last_offset_delta >= 0
        and after.base_offset > max(offset, header.base_offset)
    )
    return after.base_offset if is_batch else None


def _announced(header: BatchHeader, offset: int) -> int | None:
    is_plausible = header.magic == MAGIC_V2 and header.base_offset <= offset <= header.last_offset
    return header.next_offset if is_plausible else None


def _has_records(header: BatchHeader, aborted: Collection[AbortedTransaction]) -> bool:
    if header.is_control or not header.record_count:
        return False
    if not header.attributes & TRANSACTIONAL_FLAG:
        return True
    return all(
        header.producer_id != each.producer_id or header.base_offset < each.first_offset
        for each in aborted
    )
