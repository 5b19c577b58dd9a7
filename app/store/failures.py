"""The table of events that a replay could not deliver."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, select

from app.domain.model import Failure, Lease
from app.store.pages import PAGE_LIMIT, Page, PageCursor, decode_cursor, page_of
from app.store.replays import get_replay
from app.store.sql import TEXT_CHARS_MAX, upsert
from app.store.tables import replay_failures

_UPDATED_COLUMNS: Final = (
    *("event_id", "attempts", "status", "reason"),
    *("duration_ms", "response", "last_attempt_ms", "worker"),
)


def record_failures(connection: Connection, lease: Lease, failures: Sequence[Failure]) -> None:
    """Store `failures` of the lease's worker; replaces those with the same offset.

    Locks the written rows.
    """
    if failures:
        rows = [_to_row(lease, failure) for failure in failures]
        statement = upsert(
            connection, replay_failures, lambda new: {name: new[name] for name in _UPDATED_COLUMNS}
        )
        connection.execute(statement, rows)


def _to_row(lease: Lease, failure: Failure) -> dict[str, Any]:
    return {
        "replay_id": lease.replay_id,
        "record_offset": failure.offset,
        "event_id": failure.event_id[:TEXT_CHARS_MAX],
        "attempts": failure.attempts,
        "status": failure.status,
        "reason": failure.reason[:TEXT_CHARS_MAX],
        "duration_ms": failure.duration_ms,
        "response": failure.response and failure.response[:TEXT_CHARS_MAX],
        "last_attempt_ms": failure.last_attempt_ms,
        "worker": None if failure.last_attempt_ms is None else lease.worker,
    }


def list_failures(
    connection: Connection,
    replay_id: str,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
    *,
    of_account: str | None = None,
) -> Page[Failure]:
    """A page of the replay's failures, by offset.

    Raises:
        ReplayNotFound: see `replays.get_replay`.
        InvalidCursor: see `pages.decode_cursor`.
    """
    get_replay(connection, replay_id, of_account=of_account)
    offset = replay_failures.c.record_offset
    query = select(replay_failures).where(replay_failures.c.replay_id == replay_id)
    if cursor is not None:
        query = query.where(offset > decode_cursor(cursor).value)
    rows = connection.execute(query.order_by(offset).limit(limit + 1)).all()
    return page_of(rows, limit, _to_failure, lambda row: PageCursor(row.record_offset))


def find_failure(connection: Connection, replay_id: str, offset: int) -> Failure | None:
    """The failure at an offset; None without one."""
    query = select(replay_failures).where(
        replay_failures.c.replay_id == replay_id, replay_failures.c.record_offset == offset
    )
    row = connection.execute(query).first()
    return None if row is None else _to_failure(row)


def failed_offsets(
    connection: Connection, replay_id: str, after: int, limit: int
) -> tuple[int, ...]:
    """The first `limit` offsets of failures above `after`, ascending."""
    offset = replay_failures.c.record_offset
    query = select(offset).where(replay_failures.c.replay_id == replay_id, offset > after)
    return tuple(connection.execute(query.order_by(offset).limit(limit)).scalars())


def _to_failure(row: Row[Any]) -> Failure:
    return Failure(
        offset=row.record_offset,
        event_id=row.event_id,
        attempts=row.attempts,
        status=row.status,
        reason=row.reason,
        duration_ms=row.duration_ms,
        response=row.response,
        last_attempt_ms=row.last_attempt_ms,
        worker=row.worker,
    )
