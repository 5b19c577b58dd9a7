"""A message as an operator sees it, and a page of them."""

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
from app.log.browser.walks import RawRecord
from app.log.inspection.figures import Gap

HEADERS_MAX: Final = 100
NAME_CHARS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Header:
    """A header; its value may be null."""

    name: str
    value: Content | None


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `time_ms` is its producer's unless `is_append_time`; None without one.

    A null `key` or `value` is None, an empty one is not. `headers` are the first hundred of
    `headers_count`; both are None where the name of one cannot be read.
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
    """The offsets `[start, end)` that could be browsed in a partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages in the order that was asked for.

    Those of a partition lie in the order of offsets, and those of several are merged by their
    times. `next_cursor` leads on in that order, `previous_cursor` back; None where nothing is.
    A gap says what could not be read in time, and the cursors come back to it.
    """

    topic: str
    messages: tuple[Message, ...]
    spans: tuple[PartitionSpan, ...]
    next_cursor: str | None
    previous_cursor: str | None
    gaps: tuple[Gap, ...]


def message_of(record: RawRecord, avro_to_json: Callable[[bytes], bytes]) -> Message:
    """A record as it is shown."""
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
