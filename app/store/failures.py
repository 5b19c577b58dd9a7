"""The table of records that a replay gave up."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select

from app.domain.model import Failure
from app.store.errors import NothingToRetry
from app.store.pages import Page, Position, decode_cursor, page_of
from app.store.tables import replay_failures
from app.store.upsert import insert_or_change

TEXT_CHARS_MAX: Final = 4_000
"""Longer event ids and reasons are cut: a column of MySQL holds 65,535 bytes."""

CHANGED_COLUMNS: Final = ("event_id", "attempts", "status", "reason", "duration_ms", "response")


def record(connection: Connection, replay_id: str, failures: Sequence[Failure]) -> None:
    """Store `failures`; one of the same offset is replaced. Locks the rows written."""
    if failures:
        rows = [_to_row(replay_id, failure) for failure in failures]
        statement = insert_or_change(
            connection, replay_failures, lambda new: {name: new[name] for name in CHANGED_COLUMNS}
        )
        connection.execute(statement, rows)


def _to_row(replay_id: str, failure: Failure) -> dict[str, Any]:
    return {
        "replay_id": replay_id,
        "record_offset": failure.offset,
        "event_id": failure.event_id[:TEXT_CHARS_MAX],
        "attempts": failure.attempts,
        "status": failure.status,
        "reason": failure.reason[:TEXT_CHARS_MAX],
        "duration_ms": failure.duration_ms,
        "response": failure.response and failure.response[:TEXT_CHARS_MAX],
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
    return Failure(
        offset=row.record_offset,
        event_id=row.event_id,
        attempts=row.attempts,
        status=row.status,
        reason=row.reason,
        duration_ms=row.duration_ms,
        response=row.response,
    )
