"""A message for display, and a page of messages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.log.browser.content import (
    HEADER_BYTES_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Content,
    content_of,
)
from app.log.browser.partition_scan import RawRecord
from app.log.inspection.figures import Gap

HEADERS_MAX: Final = 100
NAME_CHARS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Header:
    """A header; its value may be None."""

    name: str
    value: Content | None


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `time_ms` is set by its producer unless `is_append_time`; None without a time.

    A null `key` or `value` is None, an empty one is not. `headers` has the first hundred of
    `headers_count`; both are None if a header name cannot be decoded.
    """

    partition: int
    offset: int
    time_ms: int | None
    is_append_time: bool
    key: Content | None
    value: Content | None
    headers: tuple[Header, ...] | None
    headers_count: int | None


@dataclass(frozen=True, slots=True)
class PartitionSpan:
    """The readable offsets `[start, end)` of a partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages in the requested order.

    Messages of a partition are in the order of offsets; partitions are merged by time.
    `next_cursor` continues in that order, `previous_cursor` goes back; None if nothing is there.
    Gaps say what could not be read in time, and the cursors include it.
    """

    topic: str
    messages: tuple[Message, ...]
    spans: tuple[PartitionSpan, ...]
    next_cursor: str | None
    previous_cursor: str | None
    gaps: tuple[Gap, ...]


def display_message(record: RawRecord, avro_to_json: Callable[[bytes], bytes]) -> Message:
    """Return a record for display."""
    headers = record.headers
    return Message(
        partition=record.partition,
        offset=record.offset,
        time_ms=record.timestamp_ms,
        is_append_time=record.is_append_time,
        key=_content(record.key, KEY_BYTES_MAX, avro_to_json),
        value=_content(record.value, VALUE_BYTES_MAX, avro_to_json),
        headers=None
        if headers is None
        else tuple(
            Header(name[:NAME_CHARS_MAX], _content(value, HEADER_BYTES_MAX, None))
            for name, value in headers[:HEADERS_MAX]
        ),
        headers_count=None if headers is None else len(headers),
    )


def _content(
    value: bytes | None, bytes_max: int, avro_to_json: Callable[[bytes], bytes] | None
) -> Content | None:
    return None if value is None else content_of(value, bytes_max, avro_to_json)
