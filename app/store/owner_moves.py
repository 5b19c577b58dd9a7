"""Replays as their owners move them: pause, resume, cancel, one by one or many at once.

Who works on one learns of it by its next write. Each function locks the rows that it moves until
the transaction ends, and notes who asked for it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, case, null, select

from app.domain.model import Replay
from app.domain.moves import MoveEvent
from app.domain.states import TRANSITIONS, ReplayEvent, ReplayState, moves
from app.store import moves as moves_table
from app.store import replays as replays_table
from app.store import samples
from app.store.claiming import claimable_from
from app.store.clock import now_ms
from app.store.errors import IllegalMove
from app.store.moves import Moved
from app.store.tables import replays
from app.store.transitions import moved_by

_AT_THE_END: Final = case((replays.c.awaits.is_not(None), null()), else_=claimable_from(now_ms()))
"""Of the queue, or of none before it is restored."""

_CHANGES: Final[Mapping[ReplayEvent, Mapping[str, Any]]] = {
    ReplayEvent.PAUSE: {"claimable_ms": None, "waiting_for": None, "claims_in_vain": 0},
    ReplayEvent.RESUME: {"claimable_ms": _AT_THE_END, "worker": None},
    ReplayEvent.CANCEL: {},
}


def move(
    connection: Connection,
    replay_id: str,
    event: ReplayEvent,
    of_account: str | None,
    actor: str | None,
) -> Replay:
    """The replay, paused, resumed or cancelled.

    Raises:
        ReplayNotFound: there is none, or it is another account's.
        IllegalMove: its state does not allow it.
    """
    replay = replays_table.locked(connection, replay_id, of_account)
    if event not in TRANSITIONS[replay.state]:
        raise IllegalMove(replay_id, replay.state, event)
    state = TRANSITIONS[replay.state][event]
    _move(connection, event, [Moved(replay_id, state, replay.lease_epoch)], actor)
    return replays_table.get(connection, replay_id)


def move_all(
    connection: Connection,
    replay_ids: Collection[str],
    event: ReplayEvent,
    of_account: str | None,
    actor: str | None,
) -> int:
    """How many of the replays were moved: those that are the account's and in a fitting state."""
    targets = moves(event)
    columns = (replays.c.id, replays.c.account_id, replays.c.state, replays.c.lease_epoch)
    # By the ids alone: by an index of the account, others' rows would be locked on the way.
    query = select(*columns).where(replays.c.id.in_(replay_ids)).with_for_update()
    moved = [
        Moved(row.id, targets[ReplayState(row.state)], row.lease_epoch)
        for row in connection.execute(query)
        if row.state in targets and of_account in (None, row.account_id)
    ]
    _move(connection, event, moved, actor)
    return len(moved)


def cancel_active_of(connection: Connection, webhook_id: str, actor: str | None) -> None:
    """Cancel the replay, if there is one, of a webhook that was deleted."""
    query = select(replays.c.id, replays.c.lease_epoch).with_for_update()
    row = connection.execute(query.where(replays.c.active_webhook_id == webhook_id)).first()
    if row is not None:
        moved = Moved(row.id, ReplayState.CANCELLED, row.lease_epoch)
        _move(connection, ReplayEvent.CANCEL, [moved], actor, "its webhook was deleted")


def _move(
    connection: Connection,
    event: ReplayEvent,
    moved: Sequence[Moved],
    actor: str | None,
    reason: str | None = None,
) -> None:
    if not moved:
        return
    ids = [each.replay_id for each in moved]
    connection.execute(moved_by(event, _CHANGES[event]).where(replays.c.id.in_(ids)))
    moves_table.note(connection, MoveEvent(event), moved, actor, reason)
    # An owner may do this as often as they like.
    moves_table.trim(connection, ids)
    if event is ReplayEvent.CANCEL:
        samples.take(connection, ids)
