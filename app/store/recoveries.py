"""The table of recoveries: webhooks whose receivers keep failing, by data centre.

The live process that delivers the webhook's partition writes its row before it skips an event, and
marks it when the receiver accepts events again. `recovery_replays` then creates the replay and
deletes the row, in one transaction.
"""

from typing import Any, Final

from sqlalchemy import Connection, Row, delete, exists, null, select, update

from app.domain.model import WebhookStatus, Window
from app.domain.options import ReplayReason
from app.domain.recovery import OutageRecord
from app.store.sql import larger, now_ms, smaller, upsert
from app.store.tables import recoveries, replays, webhooks

ABANDONED_MS: Final = 15 * 60_000
"""How long after its time a probe is overdue: longer than any Retry-After that is honoured."""

_row = recoveries.c


def save_recovery(
    connection: Connection,
    webhook_id: str,
    record: OutageRecord,
    *,
    origin: str,
    is_recovered: bool = False,
) -> None:
    """Store that a webhook is failing, or accepts events again and has missed some.

    A window that is stored is extended, never reduced.
    """
    statement = upsert(
        connection,
        recoveries,
        lambda new: {
            "since_ms": smaller(connection, _row.since_ms, new["since_ms"]),
            "from_ms": smaller(connection, _row.from_ms, new["from_ms"]),
            "to_ms": larger(connection, _row.to_ms, new["to_ms"]),
            "failed_probes": new["failed_probes"],
            "next_probe_ms": new["next_probe_ms"],
            "recovered_ms": new["recovered_ms"],
        },
    )
    values = {
        "since_ms": record.since_ms,
        "from_ms": record.window.from_ms,
        "to_ms": record.window.to_ms,
        "failed_probes": record.failed_probes,
        "next_probe_ms": record.next_probe_ms,
        "recovered_ms": now_ms() if is_recovered else None,
    }
    connection.execute(statement.values(webhook_id=webhook_id, origin=origin, **values))


def finish_recovery(connection: Connection, webhook_id: str) -> None:
    """Store that the receiver was verified: the recoveries of all data centres are due."""
    statement = update(recoveries).where(_row.webhook_id == webhook_id, _row.recovered_ms.is_(None))
    connection.execute(statement.values(recovered_ms=now_ms()))


def drop_recovery(connection: Connection, webhook_id: str, since_ms: int, *, origin: str) -> None:
    """End an outage of a webhook since a time, which has missed nothing.

    A row that an earlier outage began has missed events, and is due.
    """
    is_failing = (_row.webhook_id == webhook_id, _row.origin == origin, _row.recovered_ms.is_(None))
    connection.execute(delete(recoveries).where(*is_failing, _row.since_ms >= since_ms))
    connection.execute(update(recoveries).where(*is_failing).values(recovered_ms=now_ms()))


def delete_recoveries(connection: Connection, webhook_id: str) -> None:
    """Delete the rows of a webhook that is deleted."""
    connection.execute(delete(recoveries).where(_row.webhook_id == webhook_id))


def finish_abandoned_recoveries(connection: Connection, *, origin: str) -> int:
    """Mark the recoveries that no process continues and whose webhooks are healthy.

    A live process that could not read the row when it got the partition does not know that the
    webhook has missed events. Returns their number.
    """
    is_healthy = exists().where(
        webhooks.c.id == _row.webhook_id,
        webhooks.c.status == str(WebhookStatus.ENABLED),
        webhooks.c.failing_since_ms.is_(None),
    )
    statement = update(recoveries).where(
        _row.origin == origin,
        _row.recovered_ms.is_(None),
        _row.next_probe_ms < now_ms() - ABANDONED_MS,
        is_healthy,
    )
    return connection.execute(statement.values(recovered_ms=now_ms())).rowcount


def find_unfinished(connection: Connection, *, origin: str) -> dict[str, OutageRecord | None]:
    """The webhooks with a recovery in a data centre; None for one that is due or active.

    Otherwise the webhook is failing. One statement, so that a recovery that becomes a replay in the
    meantime is found. Locks nothing.
    """
    active = select(
        replays.c.active_webhook_id, null(), null(), null(), null(), null(), replays.c.created_ms
    ).where(
        replays.c.active_webhook_id.is_not(None),
        replays.c.reason == str(ReplayReason.RECOVERY),
        replays.c.origin == origin,
    )
    query = select(
        _row.webhook_id,
        _row.since_ms,
        _row.from_ms,
        _row.to_ms,
        _row.failed_probes,
        _row.next_probe_ms,
        _row.recovered_ms,
    ).where(_row.origin == origin)
    found: dict[str, OutageRecord | None] = {}
    for row in connection.execute(query.union_all(active)):
        if row.recovered_ms is not None:
            found[row.webhook_id] = None
        else:
            found.setdefault(row.webhook_id, _to_record(row))
    return found


def list_recoveries(connection: Connection, *, origin: str) -> dict[str, OutageRecord]:
    """The failing webhooks of a data centre, by id."""
    query = select(recoveries).where(_row.origin == origin, _row.recovered_ms.is_(None))
    return {row.webhook_id: _to_record(row) for row in connection.execute(query)}


def _to_record(row: Row[*tuple[Any, ...]]) -> OutageRecord:
    window = Window(row.from_ms, row.to_ms)
    return OutageRecord(row.since_ms, window, row.failed_probes, row.next_probe_ms)
