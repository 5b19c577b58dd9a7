"""The table of a replay's moves: its creation and its state transitions.

The transaction of a transition adds its row. It holds the lock on the replay's row, so the rows of
one replay are in the order of its transitions.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, delete, func, insert, select

from app.domain.moves import Move, MoveEvent
from app.domain.states import ReplayState
from app.store.sql import TEXT_CHARS_MAX, now_ms
from app.store.tables import replay_moves

KEPT: Final = 200
"""Rows per replay: its creation and the latest. A replay that waits is postponed for days."""


class Moved(NamedTuple):
    """A replay, and its state and lease epoch after a move."""

    replay_id: str
    state: ReplayState
    lease_epoch: int


def record_moves(
    connection: Connection,
    event: MoveEvent,
    moved: Sequence[Moved],
    actor: str | None,
    reason: str | None = None,
) -> None:
    """Add a row for each of the replays, whose rows the caller has locked."""
    if not moved:
        return
    cut = None if reason is None else reason[:TEXT_CHARS_MAX]
    rows = [
        {
            "replay_id": each.replay_id,
            "event": str(event),
            "state": str(each.state),
            "lease_epoch": each.lease_epoch,
            "actor": actor,
            "reason": cut,
        }
        for each in moved
    ]
    connection.execute(insert(replay_moves).values(at_ms=now_ms()), rows)


def trim_moves(connection: Connection, replay_ids: Collection[str]) -> None:
    """Delete the oldest moves of these replays above `KEPT`, except the creation."""
    query = (
        select(replay_moves.c.replay_id)
        .where(replay_moves.c.replay_id.in_(replay_ids))
        .group_by(replay_moves.c.replay_id)
        .having(func.count() > KEPT)
    )
    for replay_id in connection.execute(query).scalars().all():
        _trim_one(connection, replay_id)


def _trim_one(connection: Connection, replay_id: str) -> None:
    is_of_replay = replay_moves.c.replay_id == replay_id
    latest = select(replay_moves.c.id).where(is_of_replay).order_by(replay_moves.c.id.desc())
    oldest_kept = connection.execute(latest.offset(KEPT - 2).limit(1)).scalar_one()
    connection.execute(
        delete(replay_moves).where(
            is_of_replay,
            replay_moves.c.id < oldest_kept,
            replay_moves.c.event != str(MoveEvent.CREATE),
        )
    )


def read_moves(connection: Connection, replay_id: str) -> tuple[Move, ...]:
    """The moves of the replay, oldest first."""
    query = select(replay_moves).where(replay_moves.c.replay_id == replay_id)
    return tuple(map(_to_move, connection.execute(query.order_by(replay_moves.c.id))))


def _to_move(row: Row[Any]) -> Move:
    return Move(
        event=MoveEvent(row.event),
        state=ReplayState(row.state),
        lease_epoch=row.lease_epoch,
        actor=row.actor,
        reason=row.reason,
        at_ms=row.at_ms,
    )
