"""Pagination by opaque cursors."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import Column, Connection, Row, Select, or_

from app.store.errors import InvalidCursor

T = TypeVar("T")

PAGE_LIMIT: Final = 50
"""The default number of items on a page."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list, and the cursor of the next page; None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None


class PageCursor(NamedTuple):
    """The last item of a page: its value in the order, and its id if values may be equal."""

    value: int
    id: str = ""

    def encode(self) -> str:
        """The opaque text of the cursor."""
        text = f"{self.value}.{self.id}"
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(text: str) -> PageCursor:
    """The cursor that `PageCursor.encode` wrote as `text`.

    Raises:
        InvalidCursor: `text` is malformed.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        value, dot, item_id = urlsafe_b64decode(padded.encode("ascii")).decode().partition(".")
        cursor = PageCursor(int(value), item_id)
    except (Base64Error, UnicodeError, ValueError):
        raise InvalidCursor(text) from None
    # Only the canonical text is valid: base64 and int() also accept others.
    if not dot or cursor.encode() != text or abs(cursor.value) >= 2**63:
        raise InvalidCursor(text)
    return cursor


def newest_first(
    connection: Connection,
    query: Select[Any],
    order: tuple[Column[int], Column[str]],
    cursor: str | None,
    limit: int,
    build: Callable[[Row[Any]], T],
) -> Page[T]:
    """The page of `query` after `cursor`, ordered by creation time and id, newest first.

    Raises:
        InvalidCursor: see `decode_cursor`.
    """
    rows = connection.execute(after_cursor(query, order, cursor, limit)).all()
    return newest_page(rows, limit, build)


def after_cursor(
    query: Select[Any], order: tuple[Column[int], Column[str]], cursor: str | None, limit: int
) -> Select[Any]:
    """`query` limited to the page after `cursor`, and one row more.

    Raises:
        InvalidCursor: see `decode_cursor`.
    """
    created, item_id = order
    if cursor is not None:
        last = decode_cursor(cursor)
        # With a comparison of pairs, MySQL would read the index from its end.
        is_later_in_list = or_(created < last.value, item_id < last.id)
        query = query.where(created <= last.value, is_later_in_list)
    return query.order_by(created.desc(), item_id.desc()).limit(limit + 1)


def newest_page(rows: Sequence[Row[Any]], limit: int, build: Callable[[Row[Any]], T]) -> Page[T]:
    """The page of the first `limit` rows of a query of `after_cursor`."""
    return page_of(rows, limit, build, lambda row: PageCursor(row.created_ms, row.id))


def page_of(
    rows: Sequence[Row[Any]],
    limit: int,
    build: Callable[[Row[Any]], T],
    cursor_of: Callable[[Row[Any]], PageCursor],
) -> Page[T]:
    """The page of the first `limit` rows; a further row means that another page follows."""
    shown = rows[:limit]
    has_next = len(rows) > limit
    cursor = cursor_of(shown[-1]).encode() if has_next else None
    return Page(tuple(map(build, shown)), cursor)
