"""The ends of replays that are still to be told to their webhooks: an outbox in their own rows.

The statement that ends a replay makes its notice due. Who claims it counts its attempts up and
puts it off, so that it is claimed again should nobody say what became of the attempt; and who
says so names the attempt, so that one who slept changes nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, select, update

from app.domain.model import Notice, WebhookStatus
from app.store import replays as replays_table
from app.store import webhooks as webhooks_table
from app.store.clock import ms_from_now, now_ms
from app.store.errors import WebhookNotFound
from app.store.tables import NOTICE_INDEX, replays

DROPPED_PER_CLAIM: Final = 100
"""Notices with nobody to take them that one claim passes over, each under a lock."""


def is_any_due(connection: Connection) -> bool:
    """Whether a claim would find something; locks nothing."""
    return connection.execute(_due()).first() is not None


def claim(connection: Connection, lease_s: float) -> Notice | None:
    """The notice that is due for longest, put off for `lease_s`; None when none is due.

    A notice is dropped when its webhook was deleted, or when it would go to a webhook that is
    not ENABLED; one to a target of the replay's own goes there. Locks the rows it looks at;
    those that others are claiming are passed over.
    """
    for _ in range(DROPPED_PER_CLAIM):
        row = connection.execute(_due().with_for_update(skip_locked=True)).first()
        if row is None:
            return None
        notice = _prepared(connection, row)
        if notice is not None:
            values = {"notice_due_ms": ms_from_now(lease_s), "notice_attempts": notice.attempt}
            _change(connection, row.id, values)
            return notice
        _change(connection, row.id, {"notice_due_ms": None})
    return None


def _due() -> Select[Any]:
    return (
        select(replays)
        # For the same reason as a claim of a replay.
        .with_hint(replays, f"FORCE INDEX ({NOTICE_INDEX})", "mysql")
        .where(replays.c.notice_due_ms <= now_ms())
        .order_by(replays.c.notice_due_ms)
        .limit(1)
    )


def _prepared(connection: Connection, row: Row[Any]) -> Notice | None:
    """The notice of a replay's end; None when there is nobody to tell."""
    replay = replays_table.to_replay(row)
    try:
        webhook = webhooks_table.get(connection, replay.webhook_id)
    except WebhookNotFound:
        return None
    has_own_target = replay.options.target_url is not None
    if webhook.status is not WebhookStatus.ENABLED and not has_own_target:
        return None
    return Notice(replay, webhook, row.notice_attempts + 1)


def _change(connection: Connection, replay_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(update(replays).where(replays.c.id == replay_id).values(**values))


def told(connection: Connection, replay_id: str, attempt: int) -> None:
    """Nothing is due any more, if this was the last attempt to begin."""
    _after_attempt(connection, replay_id, attempt, None)


def later(connection: Connection, replay_id: str, attempt: int, pause_s: float | None) -> None:
    """Due again in `pause_s`, if this was the last attempt to begin; None gives up."""
    due_ms = None if pause_s is None else ms_from_now(pause_s)
    _after_attempt(connection, replay_id, attempt, due_ms)


def _after_attempt(
    connection: Connection, replay_id: str, attempt: int, due_ms: ColumnElement[int] | None
) -> None:
    is_it = and_(replays.c.id == replay_id, replays.c.notice_attempts == attempt)
    connection.execute(update(replays).where(is_it).values(notice_due_ms=due_ms))
