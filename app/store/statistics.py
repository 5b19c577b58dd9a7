"""Statistics of all replays for operators. Locks nothing."""

from typing import Any, Final

from sqlalchemy import Connection, Select, and_, case, func, select

from app.domain.model import JobStatistics
from app.domain.states import ReplayEvent, ReplayState, moves
from app.store.archive import awaits_restore
from app.store.claim_queue import claimable_time_ms, queued_since_ms
from app.store.sql import now_ms
from app.store.tables import replays

_HELD: Final = sorted(moves(ReplayEvent.HEARTBEAT))


def job_statistics(connection: Connection, origin: str = "") -> JobStatistics:
    """The current statistics, by state and by data centre.

    Includes `origin`, and each other data centre with something to report. Counts an index of all
    replays, and reads the rows of those that have not ended.
    """
    return JobStatistics(
        by_state=_count_by_state(connection),
        oldest_open_s={origin: 0.0} | _oldest_open_s(connection),
        late_heartbeats={origin: 0} | _late_heartbeats(connection),
        oldest_unrestored_s={origin: 0.0} | _oldest_unrestored_s(connection),
    )


def _count_by_state(connection: Connection) -> dict[ReplayState, int]:
    query = select(replays.c.state, func.count()).group_by(replays.c.state)
    counts = dict.fromkeys(ReplayState, 0)
    return counts | {ReplayState(state): count for state, count in connection.execute(query)}


def _oldest_open_s(connection: Connection) -> dict[str, float]:
    # A resumed replay waits since it was resumed; a postponed one since it was first queued.
    was_postponed = replays.c.waiting_for.is_not(None)
    since_ms = case((was_postponed, queued_since_ms()), else_=claimable_time_ms())
    query = select(replays.c.origin, func.max(now_ms() - since_ms))
    is_open = and_(replays.c.state == str(ReplayState.OPEN), replays.c.awaits.is_(None))
    return _seconds_by_origin(connection, query.where(is_open))


def _oldest_unrestored_s(connection: Connection) -> dict[str, float]:
    query = select(replays.c.origin, func.max(now_ms() - replays.c.created_ms))
    return _seconds_by_origin(connection, query.where(awaits_restore()))


def _seconds_by_origin(connection: Connection, query: Select[Any]) -> dict[str, float]:
    found = connection.execute(query.group_by(replays.c.origin))
    return {origin: max(0, ms) / 1_000 for origin, ms in found}


def _late_heartbeats(connection: Connection) -> dict[str, int]:
    query = select(replays.c.origin, func.count()).group_by(replays.c.origin)
    is_late = replays.c.state.in_(_HELD) & (claimable_time_ms() <= now_ms())
    return {row.origin: row[1] for row in connection.execute(query.where(is_late))}
