"""What is asked of the browser, and the cursors by which a page leads to those beside it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.log.errors import BrowseRefused

MESSAGES_MAX: Final = 50
"""Of a page."""

PARTITIONS_MAX: Final = 100
"""That are read together; of a topic with more, one is to be named."""

CURSOR_CHARS_MAX: Final = 4_000
"""A hundred partitions with offsets beyond any that were seen."""

_CURSOR: Final = re.compile(r"([no])([ud])((?:\.[0-9]{1,10}-[0-9]{1,19})+)", re.ASCII)


class Order(StrEnum):
    """Which message of a page stands first."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class BrowseQuestion:
    """A page of messages that somebody wants to see.

    Without a place it begins at the end of the log that `order` names. `offset`, which needs a
    `partition`, is the first message of the page. `time_ms` comes before all that the page shows
    when the oldest are shown first, else behind. A `cursor` stands alone beside `limit`.
    """

    topic: str
    partition: int | None = None
    order: Order = Order.NEWEST
    offset: int | None = None
    time_ms: int | None = None
    cursor: str | None = None
    limit: int = MESSAGES_MAX


class Cursor(NamedTuple):
    """Where a page begins: at an offset of each partition, going up from it or down below it."""

    order: Order
    is_upward: bool
    offsets: Mapping[int, int]

    @property
    def text(self) -> str:
        """The cursor as a word that a URL takes as it is."""
        places = "".join(f".{number}-{offset}" for number, offset in sorted(self.offsets.items()))
        return f"{self.order[0]}{'u' if self.is_upward else 'd'}{places}"


def read_cursor(text: str) -> Cursor:
    """The cursor of a word.

    Raises:
        BrowseRefused: it is none.
    """
    match = _CURSOR.fullmatch(text) if len(text) <= CURSOR_CHARS_MAX else None
    if match is None:
        raise BrowseRefused("cursor", text, "a cursor that a page of this topic gave")
    order = Order.NEWEST if match[1] == "n" else Order.OLDEST
    places = [place.split("-") for place in match[3].removeprefix(".").split(".")]
    offsets = {int(number): int(offset) for number, offset in places}
    return Cursor(order, match[2] == "u", offsets)


def check_question(question: BrowseQuestion) -> None:
    """Return when what is asked for can be, whatever the topic is like.

    Raises:
        BrowseRefused: it cannot; field, value and what is allowed are told.
    """
    if question.cursor is not None:
        beside = {"partition": question.partition, "offset": question.offset}
        for field, value in (beside | {"time": question.time_ms}).items():
            if value is not None:
                raise BrowseRefused(field, value, "none beside a cursor, which has its own place")
    if question.offset is None:
        return
    if question.time_ms is not None:
        raise BrowseRefused("time", question.time_ms, "none beside an offset")
    if question.partition is None:
        raise BrowseRefused("partition", None, "required beside an offset, which is of one")
