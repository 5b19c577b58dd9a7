"""The table of replays as workers see it: claim, keep, advance, finish, give back.

Every write of a worker names the epoch of its lease, which every claim raises: a worker that
slept through the end of its lease changes zero rows and is told so by False. Leases end by the
database's clock. Each function locks the one row of its replay until the transaction ends.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, select, update

from app.replay.model import Claim, Counts, Failure, Lease, OffsetRange
from app.replay.states import ReplayEvent, ReplayState, moves, next_state
from app.store import failures as failures_table
from app.store import replays as replays_table
from app.store import webhooks as webhooks_table
from app.store.clock import now_ms
from app.store.tables import CLAIM_INDEX, replays
from app.store.transitions import moved_by

ERROR_CHARS_MAX: Final = 4_000
"""Longer errors are cut: a column of MySQL holds 65,535 bytes."""

_CLAIM_EVENTS: Final = {
    state: event for event in (ReplayEvent.CLAIM, ReplayEvent.TAKE_OVER) for state in moves(event)
}


def is_any_claimable(connection: Connection) -> bool:
    """Whether a claim would find something; locks nothing, so idle workers disturb nobody."""
    return connection.execute(_claimable()).first() is not None


def claim(connection: Connection, worker: str, lease_s: float) -> Claim | None:
    """The replay that waits longest, held by `worker` for `lease_s` from now on.

    That is an OPEN one, which waits since its creation, or a held one whose lease has ended,
    which waits since then: neither kind can starve the other. Rows that others are claiming
    are passed over.
    """
    row = connection.execute(_claimable().with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    state = ReplayState(row.state)
    connection.execute(
        update(replays)
        .where(replays.c.id == row.id)
        .values(
            state=str(next_state(state, _CLAIM_EVENTS[state])),
            lease_epoch=replays.c.lease_epoch + 1,
            worker=worker,
            heartbeat_ms=now_ms(),
            claimable_ms=_end_of_lease(lease_s),
            started_ms=func.coalesce(replays.c.started_ms, now_ms()),
        )
    )
    replay = replays_table.get(connection, row.id)
    return Claim(
        lease=Lease(replay.id, replay.lease_epoch),
        replay=replay,
        webhook=webhooks_table.get(connection, replay.webhook_id),
    )


def _claimable() -> Select[tuple[str, str]]:
    return (
        select(replays.c.id, replays.c.state)
        # A plan that sorts would lock every row it sorts, and other workers would see none.
        .with_hint(replays, f"FORCE INDEX ({CLAIM_INDEX})", "mysql")
        .where(replays.c.claimable_ms <= now_ms(), replays.c.state.in_(sorted(_CLAIM_EVENTS)))
        .order_by(replays.c.claimable_ms, replays.c.id)
        .limit(1)
    )


def _end_of_lease(lease_s: float) -> ColumnElement[int]:
    return now_ms() + round(lease_s * 1_000)


def heartbeat(connection: Connection, lease: Lease, lease_s: float) -> bool:
    """Whether the lease still holds; if so, it does for `lease_s` from now on."""
    values = {"heartbeat_ms": now_ms(), "claimable_ms": _end_of_lease(lease_s)}
    return _move(connection, lease, ReplayEvent.HEARTBEAT, values)


def begin_delivery(connection: Connection, lease: Lease, offsets: OffsetRange) -> bool:
    """Whether delivery of `offsets` may begin; a job that was begun before keeps its checkpoint."""
    values = {
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
        "checkpoint_offset": func.coalesce(replays.c.checkpoint_offset, offsets.start),
    }
    return _move(connection, lease, ReplayEvent.BEGIN, values)


def checkpoint(
    connection: Connection,
    lease: Lease,
    offset: int,
    counts: Counts,
    failures: Sequence[Failure],
) -> bool:
    """Whether the job advanced to `offset`, along with what failed since the checkpoint before."""
    values = {
        "checkpoint_offset": offset,
        "delivered": counts.delivered,
        "duplicates": counts.duplicates,
        "failed": counts.failed,
    }
    if not _move(connection, lease, ReplayEvent.CHECKPOINT, values):
        return False
    failures_table.record(connection, lease.replay_id, failures)
    return True


def complete(connection: Connection, lease: Lease) -> bool:
    """Whether the job is COMPLETED by this worker."""
    return _move(connection, lease, ReplayEvent.COMPLETE, {})


def fail(connection: Connection, lease: Lease, error: str) -> bool:
    """Whether the job is FAILED by this worker, because of `error`."""
    return _move(connection, lease, ReplayEvent.FAIL, {"error": error[:ERROR_CHARS_MAX]})


def release(connection: Connection, lease: Lease) -> bool:
    """Whether the job is OPEN again, with all its progress and its old place in the queue."""
    values = {"worker": None, "claimable_ms": replays.c.created_ms}
    return _move(connection, lease, ReplayEvent.RELEASE, values)


def _move(
    connection: Connection, lease: Lease, event: ReplayEvent, values: Mapping[str, Any]
) -> bool:
    statement = moved_by(event).where(
        replays.c.id == lease.replay_id, replays.c.lease_epoch == lease.epoch
    )
    return connection.execute(statement.values(**values)).rowcount == 1
