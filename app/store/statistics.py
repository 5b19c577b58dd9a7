"""The replays in numbers, for the one who operates the service. Locks nothing."""

from typing import Final

from sqlalchemy import Connection, case, func, select

from app.replay.model import JobStatistics
from app.replay.states import ReplayEvent, ReplayState, moves
from app.store.clock import now_ms
from app.store.tables import replays

_HELD: Final = sorted(moves(ReplayEvent.HEARTBEAT))


def of_jobs(connection: Connection) -> JobStatistics:
    """The numbers now. Counts an index of all replays, and reads the rows of those not over."""
    return JobStatistics(
        by_state=_by_state(connection),
        oldest_open_s=_oldest_open_ms(connection) / 1_000,
        late_heartbeats=_late_heartbeats(connection),
    )


def _by_state(connection: Connection) -> dict[ReplayState, int]:
    query = select(replays.c.state, func.count()).group_by(replays.c.state)
    counts = dict.fromkeys(ReplayState, 0)
    return counts | {ReplayState(state): count for state, count in connection.execute(query)}


def _oldest_open_ms(connection: Connection) -> int:
    # Who was paused waits since it was resumed; who waits for the log does so since the beginning.
    was_postponed = replays.c.waiting_for.is_not(None)
    since_ms = case((was_postponed, replays.c.created_ms), else_=replays.c.claimable_ms)
    query = select(func.max(now_ms() - since_ms)).where(replays.c.state == str(ReplayState.OPEN))
    return max(0, connection.execute(query).scalar() or 0)


def _late_heartbeats(connection: Connection) -> int:
    query = select(func.count()).where(
        replays.c.state.in_(_HELD), replays.c.claimable_ms <= now_ms()
    )
    return connection.execute(query).scalar_one()
