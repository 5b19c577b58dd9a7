"""The table of processes. Each function locks only the rows that it changes."""

import json
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, select

from app.domain.processes import DELETED_AFTER_MS, Details, Process, ProcessKind
from app.store.sql import now_ms, upsert
from app.store.tables import processes

NAME_CHARS_MAX: Final = 255

LISTED_MAX: Final = 1_000
"""Processes that restart every minute leave more rows per day."""


def record_process_heartbeat(
    connection: Connection,
    kind: ProcessKind,
    name: str,
    origin: str,
    started_ms: int,
    details: Details,
) -> None:
    """Store a heartbeat of the process; replaces the row of an earlier process of that name."""
    values = {
        "origin": origin,
        "details": json.dumps(details),
        "started_ms": started_ms,
        "heartbeat_ms": now_ms(),
    }
    statement = upsert(connection, processes, lambda new: {name: new[name] for name in values})
    # The end of a name is more specific than its beginning.
    connection.execute(statement.values(kind=str(kind), name=name[-NAME_CHARS_MAX:], **values))


def remove_process(connection: Connection, kind: ProcessKind, name: str) -> None:
    """Delete the row of a process that ends."""
    is_process = and_(processes.c.kind == str(kind), processes.c.name == name[-NAME_CHARS_MAX:])
    connection.execute(delete(processes).where(is_process))


def delete_dead_processes(connection: Connection) -> None:
    """Delete the rows of processes without a heartbeat for a day."""
    last_ms = now_ms() - DELETED_AFTER_MS
    connection.execute(delete(processes).where(processes.c.heartbeat_ms < last_ms))


def list_processes(connection: Connection) -> tuple[Process, ...]:
    """The processes with a heartbeat within a day, by kind and name; at most `LISTED_MAX`."""
    query = (
        select(processes, (now_ms() - processes.c.heartbeat_ms).label("silent_ms"))
        .where(processes.c.heartbeat_ms >= now_ms() - DELETED_AFTER_MS)
        .order_by(processes.c.heartbeat_ms.desc())
        .limit(LISTED_MAX)
    )
    found = map(_to_process, connection.execute(query))
    return tuple(sorted(found, key=lambda each: (each.kind, each.name)))


def _to_process(row: Row[Any]) -> Process:
    return Process(
        kind=ProcessKind(row.kind),
        name=row.name,
        origin=row.origin,
        details=json.loads(row.details),
        started_ms=row.started_ms,
        heartbeat_ms=row.heartbeat_ms,
        silent_ms=max(0, row.silent_ms),
    )
