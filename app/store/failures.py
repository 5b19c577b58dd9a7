"""The table of records that a replay gave up."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Insert, Row, func, select
from sqlalchemy.dialects.mysql import insert as insert_mysql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from app.replay.model import Failure
from app.store.errors import NothingToRetry
from app.store.pages import Page, Position, decode_cursor, page_of
from app.store.tables import replay_failures

TEXT_CHARS_MAX: Final = 4_000
"""Longer event ids and reasons are cut: a column of MySQL holds 65,535 bytes."""

CHANGED_COLUMNS: Final = ("event_id", "attempts", "status", "reason")


def record(connection: Connection, replay_id: str, failures: Sequence[Failure]) -> None:
    """Store `failures`; one of the same offset is replaced. Locks the rows written."""
    if failures:
        rows = [_to_row(replay_id, failure) for failure in failures]
        connection.execute(_upsert(connection.dialect.name), rows)


def _upsert(dialect: str) -> Insert:
    if dialect == "sqlite":
        lite = insert_sqlite(replay_failures)
        fresh = {name: lite.excluded[name] for name in CHANGED_COLUMNS}
        keys = list(replay_failures.primary_key)
        return lite.on_conflict_do_update(index_elements=keys, set_=fresh)
    statement = insert_mysql(replay_failures)
    fresh = {name: statement.inserted[name] for name in CHANGED_COLUMNS}
    return statement.on_duplicate_key_update(fresh)


def _to_row(replay_id: str, failure: Failure) -> dict[str, Any]:
    return {
        "replay_id": replay_id,
        "record_offset": failure.offset,
        "event_id": failure.event_id[:TEXT_CHARS_MAX],
        "attempts": failure.attempts,
        "status": failure.status,
        "reason": failure.reason[:TEXT_CHARS_MAX],
    }


def in_log_order(
    connection: Connection, replay_id: str, cursor: str | None, limit: int
) -> Page[Failure]:
    """A page of what the replay gave up, by offset.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    offset = replay_failures.c.record_offset
    query = select(replay_failures).where(replay_failures.c.replay_id == replay_id)
    if cursor is not None:
        query = query.where(offset > decode_cursor(cursor).place)
    rows = connection.execute(query.order_by(offset).limit(limit + 1)).all()
    return page_of(rows, limit, _to_failure, lambda row: Position(row.record_offset))


def offsets(connection: Connection, replay_id: str, after: int, limit: int) -> tuple[int, ...]:
    """The offsets beyond `after` of what the replay gave up, ascending, `limit` at most."""
    offset = replay_failures.c.record_offset
    query = select(offset).where(replay_failures.c.replay_id == replay_id, offset > after)
    return tuple(connection.execute(query.order_by(offset).limit(limit)).scalars())


def span(connection: Connection, replay_id: str) -> tuple[int, int]:
    """The offsets `[start, end)` from the first of what the replay gave up to the last.

    Raises:
        NothingToRetry: it gave nothing up.
    """
    offset = replay_failures.c.record_offset
    query = select(func.min(offset), func.max(offset))
    first, last = connection.execute(query.where(replay_failures.c.replay_id == replay_id)).one()
    if first is None:
        raise NothingToRetry(replay_id)
    return first, last + 1


def _to_failure(row: Row[Any]) -> Failure:
    return Failure(row.record_offset, row.event_id, row.attempts, row.status, row.reason)
