"""Rows of jobs in any state and of any age, inserted in bulk."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, update

from app.domain.model import Webhook
from app.domain.states import ReplayState
from app.store.tables import replay_failures, replays

ELSEWHERE = "elsewhere"
"""Another data centre: retries of its jobs do not query the local log."""

OVER = (ReplayState.COMPLETED, ReplayState.FAILED, ReplayState.CANCELLED)


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def store_jobs(
    url: str,
    webhook: Webhook,
    count: int,
    state: ReplayState = ReplayState.OPEN,
    *,
    created_ms: int = 1_000,
    **columns: Any,
) -> list[str]:
    """Insert jobs, created one millisecond apart. Returns their ids."""
    rows = [
        {
            "id": f"rpl_{secrets.token_hex(12)}",
            "account_id": webhook.account_id,
            "webhook_id": webhook.id,
            "from_ms": 0,
            "to_ms": 3_600_000,
            "state": str(state),
            "created_ms": created_ms + number,
            "finished_ms": created_ms + number if state in OVER else None,
            "origin": ELSEWHERE,
            **columns,
        }
        for number in range(count)
    ]
    with _connected(url) as connection:
        connection.execute(insert(replays), rows)
        for row in rows:
            if row.get("failed"):
                _insert_failures(connection, row["id"], row["failed"])
    return [row["id"] for row in rows]


def _insert_failures(connection: Connection, replay_id: str, failed: int) -> None:
    rows = [
        {
            "replay_id": replay_id,
            "record_offset": offset,
            "event_id": f"evt_{offset}",
            "attempts": 1,
            "reason": "status 503",
        }
        for offset in range(failed)
    ]
    connection.execute(insert(replay_failures), rows)
    it = update(replays).where(replays.c.id == replay_id)
    connection.execute(it.values(log_partition=0, start_offset=0, end_offset=failed))


@contextmanager
def statements() -> Iterator[list[tuple[str, Sequence[Any]]]]:
    """Record the SQL statements of this process, with their parameters."""
    seen: list[tuple[str, Sequence[Any]]] = []

    def record_statement(_c: object, _cursor: object, sql: str, bound: Any, *_: object) -> None:
        seen.append((sql, bound))

    event.listen(Engine, "before_cursor_execute", record_statement)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", record_statement)


def plan_of(url: str, sql: str, bound: Sequence[Any]) -> list[str]:
    """Return SQLite's query plan of a statement."""
    with _connected(url) as connection:
        explained = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", tuple(bound))
        return [row.detail for row in explained]
