"""Replays that their owners pause, resume or cancel, one or many at a time.

The worker of such a replay learns of it at its next write. Each function locks the rows that it
changes until the commit, and records the actor.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, case, null, select

from app.domain.model import Replay
from app.domain.moves import MoveEvent
from app.domain.states import ACTIVE, TRANSITIONS, ReplayEvent, ReplayState, moves
from app.store.claim_queue import claimable_from
from app.store.errors import IllegalMove, WebhookNotFound
from app.store.moves import Moved, record_moves, trim_moves
from app.store.replays import check_no_active_replay, get_replay, lock_replay
from app.store.samples import add_samples
from app.store.sql import now_ms
from app.store.tables import replays
from app.store.transitions import transition
from app.store.webhooks import lock_webhook

_END_OF_QUEUE: Final = case((replays.c.awaits.is_not(None), null()), else_=claimable_from(now_ms()))
"""A replay that awaits a restore is in no queue."""

_VALUES: Final[Mapping[ReplayEvent, Mapping[str, Any]]] = {
    ReplayEvent.PAUSE: {"claimable_ms": None, "waiting_for": None, "claims_in_vain": 0},
    ReplayEvent.RESUME: {
        "claimable_ms": _END_OF_QUEUE,
        "worker": None,
        # A FAILED replay is active again, and its end is not notified any more.
        "active_webhook_id": replays.c.webhook_id,
        "claims_in_vain": 0,
        "error": None,
        "finished_ms": None,
        "notice_due_ms": None,
        # Unlike that of an attempt in flight, whose result then changes nothing.
        "notice_attempts": 0,
    },
    ReplayEvent.CANCEL: {},
}


def move_replay(
    connection: Connection,
    replay_id: str,
    event: ReplayEvent,
    of_account: str | None,
    actor: str | None,
) -> Replay:
    """Pause, resume or cancel the replay, and return it.

    Raises:
        ReplayNotFound: see `replays.get_replay`.
        IllegalMove: its state does not allow it.
        WebhookNotFound: the webhook of a FAILED replay, which is to be resumed, is deleted.
        ActiveReplayExists: the webhook of a FAILED replay has another one by now.
    """
    if event is ReplayEvent.RESUME:
        _lock_webhook_of_failed(connection, replay_id, of_account)
    replay = lock_replay(connection, replay_id, of_account)
    if event not in TRANSITIONS[replay.state]:
        raise IllegalMove(replay_id, replay.state, event)
    state = TRANSITIONS[replay.state][event]
    _apply(connection, event, [Moved(replay_id, state, replay.lease_epoch)], actor)
    return get_replay(connection, replay_id)


def _lock_webhook_of_failed(connection: Connection, replay_id: str, of_account: str | None) -> None:
    """Lock the webhook before the replay, in the order of a creation, if the replay is FAILED."""
    replay = get_replay(connection, replay_id, of_account=of_account)
    if replay.state is ReplayState.FAILED:
        if lock_webhook(connection, replay.webhook_id, None) is None:
            raise WebhookNotFound(replay.webhook_id)
        check_no_active_replay(connection, replay.webhook_id)


def move_replays(
    connection: Connection,
    replay_ids: Collection[str],
    event: ReplayEvent,
    of_account: str | None,
    actor: str | None,
) -> int:
    """Move the account's replays whose state allows it, and return their number."""
    targets = moves(event)
    columns = (replays.c.id, replays.c.account_id, replays.c.state, replays.c.lease_epoch)
    # By id only: an index of the account would also lock rows of other replays.
    query = select(*columns).where(replays.c.id.in_(replay_ids)).with_for_update()
    moved = [
        Moved(row.id, targets[ReplayState(row.state)], row.lease_epoch)
        for row in connection.execute(query)
        # FAILED replays are resumed one by one, because of their webhooks.
        if row.state in targets and row.state in ACTIVE and of_account in (None, row.account_id)
    ]
    _apply(connection, event, moved, actor)
    return len(moved)


def cancel_active_replay(connection: Connection, webhook_id: str, actor: str | None) -> None:
    """Cancel the active replay, if any, of a webhook that was deleted."""
    query = select(replays.c.id, replays.c.lease_epoch).with_for_update()
    row = connection.execute(query.where(replays.c.active_webhook_id == webhook_id)).first()
    if row is not None:
        moved = Moved(row.id, ReplayState.CANCELLED, row.lease_epoch)
        _apply(connection, ReplayEvent.CANCEL, [moved], actor, "its webhook was deleted")


def _apply(
    connection: Connection,
    event: ReplayEvent,
    moved: Sequence[Moved],
    actor: str | None,
    reason: str | None = None,
) -> None:
    if not moved:
        return
    ids = [each.replay_id for each in moved]
    connection.execute(transition(event, _VALUES[event]).where(replays.c.id.in_(ids)))
    record_moves(connection, MoveEvent(event), moved, actor, reason)
    # Owners can do this without limit.
    trim_moves(connection, ids)
    if event is ReplayEvent.CANCEL:
        add_samples(connection, ids)
