"""The table of processes: every statement on it. Each locks the rows that it changes, alone."""

import json
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, select

from app.domain.presence import FORGOTTEN_AFTER_MS, Details, Process, ProcessKind
from app.store.clock import now_ms
from app.store.tables import processes
from app.store.upsert import insert_or_change

NAME_CHARS_MAX: Final = 255

LISTED_MAX: Final = 1_000
"""Rows of a day; a process that is started and dies every minute leaves more."""


def beat(
    connection: Connection,
    kind: ProcessKind,
    name: str,
    origin: str,
    started_ms: int,
    details: Details,
) -> None:
    """The process lives. One of the same name, from before, is not told from it any more."""
    told = {
        "origin": origin,
        "details": json.dumps(details),
        "started_ms": started_ms,
        "heartbeat_ms": now_ms(),
    }
    statement = insert_or_change(
        connection, processes, lambda offered: {column: offered[column] for column in told}
    )
    # The end of a name tells more than its beginning.
    connection.execute(statement.values(kind=str(kind), name=name[-NAME_CHARS_MAX:], **told))


def leave(connection: Connection, kind: ProcessKind, name: str) -> None:
    """The process is at its end."""
    is_it = and_(processes.c.kind == str(kind), processes.c.name == name[-NAME_CHARS_MAX:])
    connection.execute(delete(processes).where(is_it))


def forget_silent(connection: Connection) -> None:
    """Delete the rows of those that fell silent a day ago."""
    last_ms = now_ms() - FORGOTTEN_AFTER_MS
    connection.execute(delete(processes).where(processes.c.heartbeat_ms < last_ms))


def known(connection: Connection) -> tuple[Process, ...]:
    """Those that were heard of within a day, by kind and name; of too many, the last heard of."""
    query = (
        select(processes, (now_ms() - processes.c.heartbeat_ms).label("silent_ms"))
        .where(processes.c.heartbeat_ms >= now_ms() - FORGOTTEN_AFTER_MS)
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
