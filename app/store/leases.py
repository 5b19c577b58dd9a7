"""The table of replays as workers see it: claim, keep, advance, finish, give back.

Every write of a worker names the epoch of its lease, which every claim raises: a worker that
slept through the end of its lease changes zero rows and is told so by False. Leases end by the
database's clock. A claim is for a worker of one data centre (`origin`), which reads that one's log.
Each function locks the one row of its replay until the transaction ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, func, select, update

from app.domain.model import Claim, Counts, Failure, Lease, OffsetRange, Replay
from app.domain.moves import MoveEvent
from app.domain.options import Source
from app.domain.states import ReplayEvent, moves, next_state
from app.store import failures as failures_table
from app.store import moves as moves_table
from app.store import replays as replays_table
from app.store import samples, stored_statuses
from app.store import webhooks as webhooks_table
from app.store.claiming import Queue, claimable_from, claimable_time_ms, waits_since_ms
from app.store.clock import ms_from_now, now_ms
from app.store.moves import Moved
from app.store.tables import CLAIM_INDEX, replays
from app.store.transitions import moved_by

REASON_CHARS_MAX: Final = 4_000
"""Longer reasons are cut: a column of MySQL holds 65,535 bytes."""

CLAIMS_PER_TRIM: Final = 16
"""A replay that is postponed moves three times for each claim. To look for what is too much of it
at every claim would make all of them slower."""

_CLAIM_EVENTS: Final = {
    state: event for event in (ReplayEvent.CLAIM, ReplayEvent.TAKE_OVER) for state in moves(event)
}


def queues(connection: Connection, origin: str) -> list[Queue]:
    """Where a claim would find something, by who waits longest: among `origin`'s, and nobody's.

    Locks nothing, so idle workers disturb nobody.
    """
    known = [Queue(name) for name in sorted({"", origin})] + [Queue(origin, Source.ARCHIVE)]
    firsts = (
        _claimable(queue).with_only_columns(claimable_time_ms()).scalar_subquery()
        for queue in known
    )
    found = connection.execute(select(*firsts)).one()
    waiting = [each for each in zip(found, known, strict=True) if each[0] is not None]
    return [queue for _, queue in sorted(waiting)]


_NOBODYS: Final = Queue()


def claim(
    connection: Connection,
    worker: str,
    lease_s: float,
    queue: Queue = _NOBODYS,
    origin: str = "",
) -> Claim | None:
    """The replay of `queue` that waits longest, held by `worker` for `lease_s` from now on.

    That is an OPEN one, which waits since its creation, or a held one whose lease has ended,
    which waits since then: neither kind can starve the other. Rows that others are claiming
    are passed over. Counted as in vain until it brings the replay further. From now on it is
    `origin`'s, who will store offsets of its own log with it.
    """
    row = connection.execute(_claimable(queue).with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    waiting = replays_table.to_replay(row)
    event = _CLAIM_EVENTS[waiting.state]
    replay = _taken(waiting, event, worker, origin, row.present_ms)
    connection.execute(
        update(replays)
        .where(replays.c.id == row.id)
        .values(
            state=str(replay.state),
            origin=replay.origin,
            lease_epoch=replay.lease_epoch,
            claims_in_vain=replay.claims_in_vain,
            worker=replay.worker,
            idle_ms=replay.idle_ms,
            heartbeat_ms=replay.heartbeat_ms,
            claimable_ms=claimable_from(ms_from_now(lease_s)),
            started_ms=replay.started_ms,
        )
    )
    is_takeover = event is ReplayEvent.TAKE_OVER
    reason = f"no sign of life from {waiting.worker}" if is_takeover else None
    _note_claim(connection, replay, event, reason)
    return Claim(
        lease=Lease(replay.id, replay.lease_epoch, worker),
        replay=replay,
        webhook=webhooks_table.get(connection, replay.webhook_id),
        is_takeover=is_takeover,
    )


def _taken(
    waiting: Replay, event: ReplayEvent, worker: str, origin: str, present_ms: int
) -> Replay:
    """The replay as it is once `worker` has it: what the row will say, without another look."""
    idle_ms = 0 if waiting.heartbeat_ms is None else present_ms - waiting.heartbeat_ms
    return replace(
        waiting,
        state=next_state(waiting.state, event),
        origin=origin,
        lease_epoch=waiting.lease_epoch + 1,
        claims_in_vain=waiting.claims_in_vain + 1,
        worker=worker,
        idle_ms=waiting.idle_ms + idle_ms,
        heartbeat_ms=present_ms,
        started_ms=present_ms if waiting.started_ms is None else waiting.started_ms,
    )


def _note_claim(
    connection: Connection, replay: Replay, event: ReplayEvent, reason: str | None
) -> None:
    moved = Moved(replay.id, replay.state, replay.lease_epoch)
    moves_table.note(connection, MoveEvent(event), [moved], replay.worker, reason)
    if replay.lease_epoch % CLAIMS_PER_TRIM == 0:
        moves_table.trim(connection, [replay.id])


def _claimable(queue: Queue) -> Select[Any]:
    return (
        select(replays, now_ms().label("present_ms"))
        # A plan that sorts would lock every row it sorts, and other workers would see none.
        .with_hint(replays, f"FORCE INDEX ({CLAIM_INDEX})", "mysql")
        # Of one queue, or there would be no order in the index.
        .where(queue.is_due(), replays.c.state.in_(sorted(_CLAIM_EVENTS)))
        .order_by(replays.c.claimable_ms, replays.c.id)
        .limit(1)
    )


def heartbeat(connection: Connection, lease: Lease, lease_s: float) -> bool:
    """Whether the lease still holds; if so, it does for `lease_s` from now on."""
    values = {
        "heartbeat_ms": now_ms(),
        "claimable_ms": claimable_from(ms_from_now(lease_s)),
    }
    return _move(connection, lease, ReplayEvent.HEARTBEAT, values)


def begin_delivery(connection: Connection, lease: Lease, offsets: OffsetRange) -> bool:
    """Whether delivery of `offsets` may begin; a job that was begun before keeps its checkpoint."""
    values = {
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
        "checkpoint_offset": func.coalesce(replays.c.checkpoint_offset, offsets.start),
        "waiting_for": None,
    }
    return _noted_move(connection, lease, ReplayEvent.BEGIN, values)


def checkpoint(
    connection: Connection,
    lease: Lease,
    offset: int,
    counts: Counts,
    failures: Sequence[Failure],
    statuses: Mapping[str, int] | None,
    *,
    with_sample: bool,
) -> bool:
    """Whether the job advanced to `offset`, along with what failed since the checkpoint before.

    Also for a replay that was paused or cancelled under this lease: nobody has claimed it since,
    and its owner sees what was delivered to the end.
    """
    advances = replays.c.checkpoint_offset < offset
    values = {
        # Before the checkpoint itself, which it compares with: see `moved_by`.
        "claims_in_vain": case((advances, 0), else_=replays.c.claims_in_vain),
        "checkpoint_offset": offset,
        "delivered": counts.delivered,
        "duplicates": counts.duplicates,
        "failed": counts.failed,
        "status_counts": stored_statuses.to_column(statuses),
    }
    if not _move(connection, lease, ReplayEvent.CHECKPOINT, values):
        return False
    failures_table.record(connection, lease.replay_id, failures)
    if with_sample:
        samples.take(connection, [lease.replay_id], lease.epoch)
    return True


def complete(connection: Connection, lease: Lease) -> bool:
    """Whether the job is COMPLETED by this worker."""
    return _noted_move(connection, lease, ReplayEvent.COMPLETE, {})


def fail(connection: Connection, lease: Lease, error: str) -> bool:
    """Whether the job is FAILED by this worker, because of `error`."""
    values = {"error": error[:REASON_CHARS_MAX]}
    return _noted_move(connection, lease, ReplayEvent.FAIL, values, error)


def release(connection: Connection, lease: Lease) -> bool:
    """Whether the job is OPEN again, with all its progress and its old place in the queue."""
    return _give_back(connection, lease, waits_since_ms(), None)


def postpone(connection: Connection, lease: Lease, reason: str, pause_s: float) -> bool:
    """Whether the job is OPEN again, and says that it waits for `reason`, for `pause_s`."""
    return _give_back(connection, lease, ms_from_now(pause_s), reason[:REASON_CHARS_MAX])


def _give_back(
    connection: Connection, lease: Lease, claimable_ms: ColumnElement[int], reason: str | None
) -> bool:
    values = {
        "worker": None,
        "heartbeat_ms": now_ms(),
        "claimable_ms": claimable_from(claimable_ms),
        "waiting_for": reason,
        "claims_in_vain": 0,
    }
    return _noted_move(connection, lease, ReplayEvent.RELEASE, values, reason)


def _noted_move(
    connection: Connection,
    lease: Lease,
    event: ReplayEvent,
    values: Mapping[str, Any],
    reason: str | None = None,
) -> bool:
    """Whether the job was moved, which is noted then."""
    if not _move(connection, lease, event, values):
        return False
    (target,) = set(moves(event).values())
    moved = Moved(lease.replay_id, target, lease.epoch)
    moves_table.note(connection, MoveEvent(event), [moved], lease.worker, reason)
    samples.take(connection, [lease.replay_id], lease.epoch)
    return True


def _move(
    connection: Connection, lease: Lease, event: ReplayEvent, values: Mapping[str, Any]
) -> bool:
    statement = moved_by(event, values).where(
        replays.c.id == lease.replay_id, replays.c.lease_epoch == lease.epoch
    )
    return connection.execute(statement).rowcount == 1
