"""The table of late arrivals: where events lie that reached the log long after their time.

A row says of one partition of one data centre's log: late events of these times lie below this
offset. The request that brought them writes it before it is answered; a later one deletes it, once
the log keeps none of its times any more.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select

from app.domain.lateness import LateSpan
from app.domain.model import Window
from app.store.clock import now_ms
from app.store.tables import late_arrivals

ROWS_PER_INSERT: Final = 199
"""Older versions of SQLite take no more than 999 parameters; a row has five."""

EXPIRED_PER_NOTE: Final = 500
"""Old rows that one call deletes: more than it adds, but for logs of very many partitions."""


def note(connection: Connection, spans: Sequence[LateSpan], retention_ms: int, origin: str) -> None:
    """Store spans of `origin`'s log, and delete rows of times more than `retention_ms` ago.

    Locks the new rows, and old ones that nobody else is deleting.
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
        .limit(EXPIRED_PER_NOTE)
        .with_for_update(skip_locked=True)
    )
    if ids := connection.execute(expired).scalars().all():
        connection.execute(delete(late_arrivals).where(late_arrivals.c.id.in_(ids)))


def end(connection: Connection, partition: int, window: Window, origin: str) -> int | None:
    """The offset that all late events of the window lie below in `origin`'s log; None without any.

    A span may reach further than its events, and one of before may be of another log, so it may be
    too high, and never too low.
    """
    # One look-up each, in the order of the index, which holds no order over both.
    ends = (_end(partition, window, each).scalar_subquery() for each in ("", origin))
    found = connection.execute(select(*ends)).one()
    return max((each for each in found if each is not None), default=None)


def noted_ms(connection: Connection, partition: int, window: Window, origin: str) -> int | None:
    """When the last late event of the window was noted in `origin`'s log; None without any."""
    found: int | None = connection.scalar(
        select(func.max(late_arrivals.c.noted_ms)).where(
            late_arrivals.c.origin.in_(("", origin)), *_meets(partition, window)
        )
    )
    return found


def _end(partition: int, window: Window, origin: str) -> Select[tuple[int]]:
    row = late_arrivals.c
    query = select(row.end_offset).where(row.origin == origin, *_meets(partition, window))
    return query.order_by(row.end_offset.desc()).limit(1)


def _meets(partition: int, window: Window) -> tuple[ColumnElement[bool], ...]:
    row = late_arrivals.c
    return (
        row.log_partition == partition,
        row.from_ms < window.to_ms,
        row.to_ms > window.from_ms,
    )
