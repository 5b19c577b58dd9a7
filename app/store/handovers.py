"""The table of handovers, by which a replay takes over events from the live path.

A worker requests one and waits until it is acknowledged. The live process that delivers the
partition acknowledges it when it sends none of the events any more. All live processes of the
data centre read new rows several times a second, and all rows when they start.
"""

import json
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, delete, select, update

from app.domain.handovers import KEPT_MS, LiveHandover
from app.domain.model import OffsetRange, Window
from app.store.sql import now_ms, upsert
from app.store.tables import live_handovers

OVERLAP_MS: Final = 60_000
"""How far back `list_handovers` repeats rows: a transaction may commit late."""

_EXPIRED_PER_CALL: Final = 100


class HandoverList(NamedTuple):
    """Handovers, and the database's time of the query."""

    handovers: tuple[LiveHandover, ...]
    as_of_ms: int


def request_handover(connection: Connection, handover: LiveHandover, *, origin: str) -> None:
    """Store the handover of a replay, unless it is stored; delete some that have expired."""
    _delete_expired(connection)
    values = {
        "origin": origin,
        "webhook_id": handover.webhook_id,
        "log_partition": handover.offsets.partition,
        "start_offset": handover.offsets.start,
        "end_offset": handover.offsets.end,
        "from_ms": handover.window.from_ms,
        "to_ms": handover.window.to_ms,
        "event_types": json.dumps(handover.event_types),
        "requested_ms": handover.requested_ms,
        "created_ms": now_ms(),
    }
    # A replay that is claimed again has the same events.
    statement = upsert(connection, live_handovers, lambda new: {"origin": new["origin"]})
    connection.execute(statement.values(replay_id=handover.replay_id, **values))


def _delete_expired(connection: Connection) -> None:
    row = live_handovers.c
    expired = (
        select(row.replay_id)
        .where(row.to_ms < now_ms() - KEPT_MS)
        .order_by(row.to_ms)
        .limit(_EXPIRED_PER_CALL)
        .with_for_update(skip_locked=True)
    )
    if ids := connection.execute(expired).scalars().all():
        connection.execute(delete(live_handovers).where(row.replay_id.in_(ids)))


def list_handovers(connection: Connection, since_ms: int, *, origin: str) -> HandoverList:
    """The handovers of a data centre since `since_ms`, and some before; locks nothing."""
    row = live_handovers.c
    query = select(live_handovers).where(
        row.origin == origin,
        row.created_ms >= since_ms - OVERLAP_MS,
        row.to_ms >= now_ms() - KEPT_MS,
    )
    as_of_ms = connection.scalar(select(now_ms()))
    assert as_of_ms is not None
    return HandoverList(tuple(map(_to_handover, connection.execute(query))), as_of_ms)


def is_handover_acknowledged(connection: Connection, replay_id: str) -> bool:
    """Whether the live path sends none of the events any more."""
    row = live_handovers.c
    query = select(row.acknowledged_ms).where(row.replay_id == replay_id)
    return connection.scalar(query) is not None


def acknowledge_handover(connection: Connection, replay_id: str) -> None:
    """Record that the live path sends none of the events any more."""
    is_one = live_handovers.c.replay_id == replay_id
    connection.execute(update(live_handovers).where(is_one).values(acknowledged_ms=now_ms()))


def _to_handover(row: Row[Any]) -> LiveHandover:
    return LiveHandover(
        replay_id=row.replay_id,
        webhook_id=row.webhook_id,
        offsets=OffsetRange(row.log_partition, row.start_offset, row.end_offset),
        window=Window(row.from_ms, row.to_ms),
        event_types=tuple(json.loads(row.event_types)),
        requested_ms=row.requested_ms,
        is_acknowledged=row.acknowledged_ms is not None,
    )
