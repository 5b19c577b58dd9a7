"""The table of late arrivals: where the log has events that arrived long after their event time.

A row says that in one partition of one data centre's log, late events of a span of times lie below
an offset. The request that appends the events writes the row before it is answered. A later
request deletes the row after the log has deleted the events.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select

from app.domain.lateness import LateSpan
from app.domain.model import Window
from app.store.sql import now_ms
from app.store.tables import late_arrivals

ROWS_PER_INSERT: Final = 199
"""Older versions of SQLite accept at most 999 parameters; a row has five."""

EXPIRED_PER_CALL: Final = 500
"""Expired rows that one call deletes: more than it adds, except for very many partitions."""


def record_late_arrivals(
    connection: Connection, spans: Sequence[LateSpan], retention_ms: int, *, origin: str
) -> None:
    """Store spans of a data centre's log, and delete rows older than `retention_ms`.

    Locks the new rows, and deleted rows that no other transaction deletes.
    """
    rows = [{**_to_row(span), "origin": origin} for span in spans]
    for start in range(0, len(rows), ROWS_PER_INSERT):
        chunk = rows[start : start + ROWS_PER_INSERT]
        connection.execute(insert(late_arrivals).values(chunk))
    _delete_expired(connection, retention_ms)


def _to_row(span: LateSpan) -> dict[str, Any]:
    return {
        "log_partition": span.partition,
        "from_ms": span.window.from_ms,
        "to_ms": span.window.to_ms,
        "end_offset": span.end,
        "noted_ms": now_ms(),
    }


def _delete_expired(connection: Connection, retention_ms: int) -> None:
    expired = (
        select(late_arrivals.c.id)
        .where(late_arrivals.c.to_ms < now_ms() - retention_ms)
        .order_by(late_arrivals.c.to_ms)
        .limit(EXPIRED_PER_CALL)
        .with_for_update(skip_locked=True)
    )
    if ids := connection.execute(expired).scalars().all():
        connection.execute(delete(late_arrivals).where(late_arrivals.c.id.in_(ids)))


def late_end_offset(
    connection: Connection, partition: int, window: Window, *, origin: str
) -> int | None:
    """The offset below which all late events of the window lie; None if there are none.

    May be too high, never too low: a span may be wider than its events, and rows without an
    origin, of a previous version, may refer to the log of another data centre.
    """
    # One subquery per origin, because the index is ordered within an origin.
    ends = (_end_offset(partition, window, each).scalar_subquery() for each in ("", origin))
    found = connection.execute(select(*ends)).one()
    return max((each for each in found if each is not None), default=None)


def late_recorded_ms(
    connection: Connection, partition: int, window: Window, *, origin: str
) -> int | None:
    """When the last late event of the window was recorded; None if there are none."""
    found: int | None = connection.scalar(
        select(func.max(late_arrivals.c.noted_ms)).where(
            late_arrivals.c.origin.in_(("", origin)), *_overlaps(partition, window)
        )
    )
    return found


def _end_offset(partition: int, window: Window, origin: str) -> Select[tuple[int]]:
    row = late_arrivals.c
    query = select(row.end_offset).where(row.origin == origin, *_overlaps(partition, window))
    return query.order_by(row.end_offset.desc()).limit(1)


def _overlaps(partition: int, window: Window) -> tuple[ColumnElement[bool], ...]:
    row = late_arrivals.c
    return (
        row.log_partition == partition,
        row.from_ms < window.to_ms,
        row.to_ms > window.from_ms,
    )
