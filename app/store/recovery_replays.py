"""Creates the replays of webhooks whose receivers accept events again."""

from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Integer, Select, String, bindparam, delete, select

from app.domain.model import NewReplay, Replay, Webhook, WebhookStatus, Window
from app.domain.options import Only, ReplayOptions, ReplayReason
from app.domain.windows import MINUTE_MS
from app.store.errors import ActiveReplayExists
from app.store.replays import create_replay
from app.store.sql import now_ms
from app.store.tables import recoveries, replays, webhooks
from app.store.webhooks import lock_webhook

ACTOR: Final = "recovery"
"""Who created the replay, in its moves."""

AHEAD_MS: Final = MINUTE_MS
"""How far the window of a replay in strict order reaches ahead."""

_row = recoveries.c


def find_due_recoveries(connection: Connection, limit: int, *, origin: str) -> tuple[str, ...]:
    """ENABLED webhooks with a due recovery and no active replay, the one due longest first.

    Locks nothing.
    """
    found = connection.execute(_due_query(), {"origin": origin, "limit": limit})
    return tuple(found.scalars())


@cache
def _due_query() -> Select[Any]:
    """The query of `find_due_recoveries`: built each second, it would leave cycles of objects."""
    active = select(replays.c.id).where(replays.c.active_webhook_id == _row.webhook_id)
    return (
        select(_row.webhook_id)
        .join(webhooks, webhooks.c.id == _row.webhook_id)
        .where(
            _row.origin == bindparam("origin", type_=String),
            _row.recovered_ms.is_not(None),
            ~active.exists(),
        )
        .where(webhooks.c.status == str(WebhookStatus.ENABLED))
        .order_by(_row.recovered_ms)
        .limit(bindparam("limit", type_=Integer))
    )


def start_recovery(connection: Connection, webhook_id: str, *, origin: str) -> Replay | None:
    """Create the replay of a due recovery and delete its row.

    None if another process did so, the webhook is not ENABLED, or it has an active replay, which
    the recovery waits for. Locks the webhook's row and the recovery until the commit.
    """
    webhook = lock_webhook(connection, webhook_id, None)
    is_one = (_row.webhook_id == webhook_id, _row.origin == origin)
    query = select(recoveries, now_ms().label("present_ms"))
    row = connection.execute(query.where(*is_one).with_for_update()).first()
    if row is None or row.recovered_ms is None:
        return None
    if webhook is not None:
        if webhook.status is not WebhookStatus.ENABLED:
            return None
        # Events of its last moments may be dated a little ahead; in strict order, also those that
        # are logged until the replay looks up its range.
        present_ms = row.present_ms + (AHEAD_MS if webhook.is_ordered else 0)
        window = Window(row.from_ms, max(row.to_ms, present_ms, row.from_ms + 1))
        try:
            replay, _ = create_replay(connection, _new_replay(webhook, window, origin), actor=ACTOR)
        except ActiveReplayExists:
            return None
    connection.execute(delete(recoveries).where(*is_one))
    return None if webhook is None else replay


def _new_replay(webhook: Webhook, window: Window, origin: str) -> NewReplay:
    return NewReplay(
        webhook.id,
        window,
        ReplayOptions(only=Only.FAILED, max_in_flight=1 if webhook.is_ordered else None),
        origin=origin,
        reason=ReplayReason.RECOVERY,
    )
