"""Lists a page at a time: where the next page begins is an opaque cursor."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import Column, Connection, Row, Select, or_

from app.store.errors import InvalidCursor

T = TypeVar("T")

PAGE_LIMIT: Final = 50
"""Rows of a page when nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list, and the cursor of the page after; None at the end of the list."""

    items: tuple[T, ...]
    next_cursor: str | None


class Position(NamedTuple):
    """The last item of a page: its place in the order, and its id where places may be equal."""

    place: int
    id: str = ""

    def encode(self) -> str:
        """The cursor that callers hand back."""
        text = f"{self.place}.{self.id}"
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> Position:
    """The position that `cursor` stands for.

    Raises:
        InvalidCursor: it is not one of `Position.encode`.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place, dot, item_id = urlsafe_b64decode(padded.encode("ascii")).decode().partition(".")
        position = Position(int(place), item_id)
    except (Base64Error, UnicodeError, ValueError):
        raise InvalidCursor(cursor) from None
    # One position has one cursor: base64 and int() both take more than they give.
    if not dot or position.encode() != cursor or abs(position.place) >= 2**63:
        raise InvalidCursor(cursor)
    return position


def newest_first(
    connection: Connection,
    query: Select[Any],
    order: tuple[Column[int], Column[str]],
    cursor: str | None,
    limit: int,
    build: Callable[[Row[Any]], T],
) -> Page[T]:
    """The page of `query` after `cursor`, ordered by creation and id, the latest first.

    Raises:
        InvalidCursor: see `decode_cursor`.
    """
    rows = connection.execute(after_cursor(query, order, cursor, limit)).all()
    return first_page(rows, limit, build)


def after_cursor(
    query: Select[Any], order: tuple[Column[int], Column[str]], cursor: str | None, limit: int
) -> Select[Any]:
    """`query` for the page after `cursor`, and one row more.

    Raises:
        InvalidCursor: see `decode_cursor`.
    """
    created, item_id = order
    if cursor is not None:
        last = decode_cursor(cursor)
        # As a comparison of pairs, MySQL would read the index from its end.
        is_later_in_list = or_(created < last.place, item_id < last.id)
        query = query.where(created <= last.place, is_later_in_list)
    return query.order_by(created.desc(), item_id.desc()).limit(limit + 1)


def first_page(rows: Sequence[Row[Any]], limit: int, build: Callable[[Row[Any]], T]) -> Page[T]:
    """The page of the first of `rows`, which have what `after_cursor` orders by."""
    return page_of(rows, limit, build, lambda row: Position(row.created_ms, row.id))


def page_of(
    rows: Sequence[Row[Any]],
    limit: int,
    build: Callable[[Row[Any]], T],
    position_of: Callable[[Row[Any]], Position],
) -> Page[T]:
    """The first `limit` of `rows`; one row more than that says that a page follows."""
    shown = rows[:limit]
    follows = len(rows) > limit
    cursor = position_of(shown[-1]).encode() if follows else None
    return Page(tuple(map(build, shown)), cursor)
