"""The query for a page of messages, and the cursors to its neighbours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.log.errors import BrowseRefused

MESSAGES_MAX: Final = 50
"""Messages of a page."""

PARTITIONS_MAX: Final = 100
"""Partitions that are read together; a topic with more needs a partition in the query."""

CURSOR_CHARS_MAX: Final = 4_000
"""A hundred partitions with the largest offsets."""

_CURSOR: Final = re.compile(r"([no])([ud])((?:\.[0-9]{1,10}-[0-9]{1,19})+)", re.ASCII)


class MessageOrder(StrEnum):
    """Which message of a page comes first."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class BrowseQuery:
    """A page of messages.

    By default it starts at the end of the log that `order` names. `offset`, which requires a
    `partition`, is the first message of the page. With `time_ms`, the page shows messages after
    that time if the oldest come first, else before it. A `cursor` excludes all but `limit`.
    """

    topic: str
    partition: int | None = None
    order: MessageOrder = MessageOrder.NEWEST
    offset: int | None = None
    time_ms: int | None = None
    cursor: str | None = None
    limit: int = MESSAGES_MAX


class Cursor(NamedTuple):
    """Where a page starts: at an offset of each partition, forward from it or backward below it."""

    order: MessageOrder
    is_forward: bool
    offsets: Mapping[int, int]

    @property
    def text(self) -> str:
        """The cursor as text that needs no URL encoding."""
        places = "".join(f".{number}-{offset}" for number, offset in sorted(self.offsets.items()))
        return f"{self.order[0]}{'u' if self.is_forward else 'd'}{places}"


def parse_cursor(text: str) -> Cursor:
    """Parse a cursor.

    Raises:
        BrowseRefused: it is invalid.
    """
    match = _CURSOR.fullmatch(text) if len(text) <= CURSOR_CHARS_MAX else None
    if match is None:
        raise BrowseRefused("cursor", text, "a cursor of a page of this topic")
    order = MessageOrder.NEWEST if match[1] == "n" else MessageOrder.OLDEST
    places = [place.split("-") for place in match[3].removeprefix(".").split(".")]
    offsets = {int(number): int(offset) for number, offset in places}
    return Cursor(order, match[2] == "u", offsets)


def check_query(query: BrowseQuery) -> None:
    """Check a query, without the topic.

    Raises:
        BrowseRefused: it is invalid.
    """
    if query.cursor is not None:
        excluded = {"partition": query.partition, "offset": query.offset}
        for field, value in (excluded | {"time": query.time_ms}).items():
            if value is not None:
                raise BrowseRefused(field, value, "none with a cursor")
    if query.offset is None:
        return
    if query.time_ms is not None:
        raise BrowseRefused("time", query.time_ms, "none with an offset")
    if query.partition is None:
        raise BrowseRefused("partition", None, "required with an offset")
