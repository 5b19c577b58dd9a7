"""The table of late arrivals: where events lie that reached the log long after their time.

A row says of one partition: late events of these times lie below this offset. The request that
brought them writes it before it is answered; a later one deletes it, once the log keeps none of
its times any more.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select

from app.replay.lateness import LateSpan
from app.replay.model import Window
from app.store.clock import now_ms
from app.store.tables import late_arrivals

ROWS_PER_INSERT: Final = 200
"""Older versions of SQLite take no more than 999 parameters; a row has four."""

EXPIRED_PER_NOTE: Final = 500
"""Old rows that one call deletes: more than it adds, but for logs of very many partitions."""


def note(connection: Connection, spans: Sequence[LateSpan], retention_ms: int) -> None:
    """Store the spans, and delete rows of times more than `retention_ms` ago.

    Locks the new rows, and old ones that nobody else is deleting.
    """
    rows = [_to_row(span) for span in spans]
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


def end(connection: Connection, partition: int, window: Window) -> int | None:
    """The offset that all late events of the window lie below; None when there are none.

    A span may reach further than its events, so it may be too high, and never too low.
    """
    row = late_arrivals.c
    query = select(row.end_offset).where(
        row.log_partition == partition, row.from_ms < window.to_ms, row.to_ms > window.from_ms
    )
    return connection.execute(query.order_by(row.end_offset.desc()).limit(1)).scalar()
