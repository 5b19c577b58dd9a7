"""The table of live backlogs: events of webhooks that wait for a retry, by data centre.

The live process that has the events writes them every second while they change, and repeats them
regardless, so that rows of a process that ended are recognized by their age.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, select

from app.domain.live_backlog import CURRENT_MS, LiveBacklog
from app.store.sql import IDS_PER_QUERY, now_ms, upsert
from app.store.tables import live_backlogs

KEPT_MS: Final = 3_600_000

_COLUMNS: Final = (
    *("waiting", "retrying", "is_recovering", "status", "reason"),
    *("failed_ms", "next_attempt_ms", "updated_ms"),
)


def record_live_backlogs(
    connection: Connection, backlogs: Mapping[str, LiveBacklog | None], *, origin: str
) -> None:
    """Store backlogs by webhook; None deletes one. Locks their rows, and those of old ones."""
    row = live_backlogs.c
    ended = [each for each, backlog in backlogs.items() if backlog is None]
    for start in range(0, len(ended), IDS_PER_QUERY):
        chunk = ended[start : start + IDS_PER_QUERY]
        connection.execute(
            delete(live_backlogs).where(row.webhook_id.in_(chunk), row.origin == origin)
        )
    statement = upsert(
        connection, live_backlogs, lambda new: {name: new[name] for name in _COLUMNS}
    )
    # Sorted, so that two processes cannot deadlock.
    for webhook_id, backlog in sorted(backlogs.items()):
        if backlog is not None:
            values = {
                "waiting": backlog.waiting,
                "retrying": backlog.retrying,
                "is_recovering": int(backlog.is_recovering),
                "status": backlog.status,
                "reason": backlog.reason,
                "failed_ms": backlog.failed_ms,
                "next_attempt_ms": backlog.next_attempt_ms,
                "updated_ms": now_ms(),
            }
            connection.execute(statement.values(webhook_id=webhook_id, origin=origin, **values))
    connection.execute(delete(live_backlogs).where(row.updated_ms < now_ms() - KEPT_MS))


def list_live_backlogs(
    connection: Connection, webhook_ids: Collection[str]
) -> dict[str, LiveBacklog]:
    """The current backlogs of webhooks that have one; of several data centres, their sum."""
    row, found = live_backlogs.c, dict[str, LiveBacklog]()
    ids = sorted(set(webhook_ids))
    for start in range(0, len(ids), IDS_PER_QUERY):
        chunk = ids[start : start + IDS_PER_QUERY]
        query = select(live_backlogs).where(
            row.webhook_id.in_(chunk), row.updated_ms >= now_ms() - CURRENT_MS
        )
        for each in connection.execute(query):
            backlog = _to_backlog(each)
            known = found.get(each.webhook_id)
            found[each.webhook_id] = backlog if known is None else _sum(known, backlog)
    return found


def _to_backlog(row: Row[Any]) -> LiveBacklog:
    return LiveBacklog(
        waiting=row.waiting,
        retrying=row.retrying,
        is_recovering=bool(row.is_recovering),
        status=row.status,
        reason=row.reason,
        failed_ms=row.failed_ms,
        next_attempt_ms=row.next_attempt_ms,
    )


def _sum(one: LiveBacklog, other: LiveBacklog) -> LiveBacklog:
    last = max(one, other, key=lambda each: each.failed_ms)
    return LiveBacklog(
        waiting=one.waiting + other.waiting,
        retrying=one.retrying + other.retrying,
        is_recovering=one.is_recovering and other.is_recovering,
        status=last.status,
        reason=last.reason,
        failed_ms=last.failed_ms,
        next_attempt_ms=min(one.next_attempt_ms, other.next_attempt_ms),
    )
