"""Replays as workers use them: claim, heartbeat, checkpoint, finish, give back.

Each claim raises the lease epoch, and each write of a worker names its epoch: a worker whose lease
is gone changes zero rows and gets False. Leases end by the database's clock. A claim is for workers
of one data centre (`origin`), which read its log. Each function locks the row of its replay until
the commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, func, literal, select, update

from app.domain.model import (
    Claim,
    Counts,
    Failure,
    Lease,
    OffsetRange,
    Replay,
    UnreadableCounts,
)
from app.domain.moves import MoveEvent
from app.domain.receiver_failure import ReceiverFailure
from app.domain.recovery import OutageRecord
from app.domain.states import ReplayEvent, moves, next_state
from app.store.claim_queue import ClaimQueue, claimable_from, queued_since_ms, running_replays
from app.store.failures import record_failures
from app.store.moves import Moved, record_moves, trim_moves
from app.store.recoveries import save_recovery
from app.store.replay_columns import receiver_failure_to_column, status_counts_to_column
from app.store.replays import to_replay
from app.store.samples import add_first_sample, add_samples
from app.store.sql import TEXT_CHARS_MAX, ms_from_now, now_ms
from app.store.tables import CLAIM_INDEX, accounts, replays
from app.store.transitions import transition
from app.store.webhooks import get_webhook

CLAIMS_PER_TRIM: Final = 16
"""A replay that is postponed makes three moves per claim. Trimming at every claim would slow down
all claims."""

_CLAIM_EVENTS: Final = {
    state: event for event in (ReplayEvent.CLAIM, ReplayEvent.TAKE_OVER) for state in moves(event)
}


def claim_from_queue(
    connection: Connection,
    worker: str,
    lease_s: float,
    queue: ClaimQueue,
    origin: str = "",
    running_max: int | None = None,
    located: Mapping[str, OffsetRange] = {},
) -> Claim | None:
    """Claim the replay of `queue` that has waited longest, for `lease_s`; None if there is none.

    An OPEN replay waits since its creation, and one with an expired lease since the expiry, so
    neither kind can starve the other. Skips rows that others are claiming. The claim counts as one
    without progress until a checkpoint advances. The replay is assigned to `origin`, whose log its
    offsets refer to. With `running_max`, the account's row is locked, and None is returned if
    others lock it or so many of its replays are held. Delivery begins with the claim if `located`
    has the offsets of the replay, and no worker has stored any.
    """
    if running_max is not None and not _may_run_more(connection, queue.account_id, running_max):
        return None
    row = connection.execute(_claimable(queue).with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    waiting = to_replay(row)
    event = _CLAIM_EVENTS[waiting.state]
    claimed = _claimed(waiting, event, worker, origin, row.present_ms)
    offsets = located.get(waiting.id) if waiting.offsets is None else None
    replay = claimed if offsets is None else _begun(claimed, offsets)
    connection.execute(
        update(replays)
        .where(replays.c.id == row.id)
        .values(
            state=str(replay.state),
            origin=replay.origin,
            lease_epoch=replay.lease_epoch,
            claims_in_vain=replay.claims_without_progress,
            worker=replay.worker,
            idle_ms=replay.idle_ms,
            heartbeat_ms=replay.heartbeat_ms,
            claimable_ms=claimable_from(ms_from_now(lease_s)),
            started_ms=replay.started_ms,
            **({} if offsets is None else _begun_values(offsets)),
        )
    )
    is_takeover = event is ReplayEvent.TAKE_OVER
    reason = f"no heartbeat from {waiting.worker}" if is_takeover else None
    _record_claim(connection, claimed, event, reason)
    if offsets is not None:
        _record_move(connection, replay, ReplayEvent.BEGIN)
        add_first_sample(connection, replay.id)
    return Claim(
        lease=Lease(replay.id, replay.lease_epoch, worker),
        replay=replay,
        webhook=get_webhook(connection, replay.webhook_id),
        is_takeover=is_takeover,
        has_begun=offsets is not None,
    )


def _may_run_more(connection: Connection, account_id: str, running_max: int) -> bool:
    account = select(accounts.c.id).where(accounts.c.id == account_id)
    if connection.execute(account.with_for_update(skip_locked=True)).first() is None:
        return False
    running: int = connection.execute(running_replays(literal(account_id))).scalar_one()
    return running < running_max


def _claimed(
    waiting: Replay, event: ReplayEvent, worker: str, origin: str, present_ms: int
) -> Replay:
    """The replay after `worker` claimed it, without another query."""
    idle_ms = 0 if waiting.heartbeat_ms is None else present_ms - waiting.heartbeat_ms
    return replace(
        waiting,
        state=next_state(waiting.state, event),
        origin=origin,
        lease_epoch=waiting.lease_epoch + 1,
        claims_without_progress=waiting.claims_without_progress + 1,
        worker=worker,
        idle_ms=waiting.idle_ms + idle_ms,
        heartbeat_ms=present_ms,
        started_ms=present_ms if waiting.started_ms is None else waiting.started_ms,
    )


def _begun(claimed: Replay, offsets: OffsetRange) -> Replay:
    """The claimed replay after its delivery has begun."""
    state = next_state(claimed.state, ReplayEvent.BEGIN)
    return replace(claimed, state=state, offsets=offsets, checkpoint=offsets.start)


def _record_move(
    connection: Connection, replay: Replay, event: ReplayEvent, reason: str | None = None
) -> None:
    moved = Moved(replay.id, replay.state, replay.lease_epoch)
    record_moves(connection, MoveEvent(event), [moved], replay.worker, reason)


def _record_claim(
    connection: Connection, replay: Replay, event: ReplayEvent, reason: str | None
) -> None:
    _record_move(connection, replay, event, reason)
    if replay.lease_epoch % CLAIMS_PER_TRIM == 0:
        trim_moves(connection, [replay.id])


def _claimable(queue: ClaimQueue) -> Select[Any]:
    return (
        select(replays, now_ms().label("present_ms"))
        # A plan with a sort would lock every sorted row, and other workers would find none.
        .with_hint(replays, f"FORCE INDEX ({CLAIM_INDEX})", "mysql")
        # One queue only, because the index is ordered within a queue.
        .where(queue.is_due(), replays.c.state.in_(sorted(_CLAIM_EVENTS)))
        .order_by(replays.c.claimable_ms, replays.c.id)
        .limit(1)
    )


def heartbeat(connection: Connection, lease: Lease, lease_s: float) -> bool:
    """Extend the lease to `lease_s` from now; False if it is gone."""
    values = {
        "heartbeat_ms": now_ms(),
        "claimable_ms": claimable_from(ms_from_now(lease_s)),
    }
    return _apply(connection, lease, ReplayEvent.HEARTBEAT, values)


def begin_delivery(
    connection: Connection,
    lease: Lease,
    offsets: OffsetRange,
    *,
    available_from_ms: int | None = None,
) -> bool:
    """Store the offsets to deliver; an existing checkpoint is kept. False if the lease is gone.

    `available_from_ms` is the start of what the log retains of a longer window.
    """
    available = func.coalesce(replays.c.available_from_ms, available_from_ms)
    values = _begun_values(offsets) | {"available_from_ms": available}
    return _apply_and_record(connection, lease, ReplayEvent.BEGIN, values)


def _begun_values(offsets: OffsetRange) -> dict[str, Any]:
    return {
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
        "checkpoint_offset": func.coalesce(replays.c.checkpoint_offset, offsets.start),
        "waiting_for": None,
        "receiver_failure": None,
    }


def store_checkpoint(
    connection: Connection,
    lease: Lease,
    offset: int,
    counts: Counts,
    failures: Sequence[Failure],
    status_counts: Mapping[str, int] | None = None,
    *,
    unreadable: UnreadableCounts,
    with_sample: bool = False,
) -> bool:
    """Store that everything below `offset` is done, and the failures since the last checkpoint.

    `counts`, `status_counts` and `unreadable` are totals of the whole replay, so repeating a call
    counts nothing twice. Also works after the replay was paused or cancelled under this lease: no
    other worker has claimed it since. With a sample, adds one if it is due. False if the lease is
    gone.
    """
    advances = replays.c.checkpoint_offset < offset
    values = {
        # Before the checkpoint, which the expression reads: see `transition`.
        "claims_in_vain": case((advances, 0), else_=replays.c.claims_in_vain),
        "checkpoint_offset": offset,
        "delivered": counts.delivered,
        "duplicates": counts.duplicates,
        "failed": counts.failed,
        "status_counts": status_counts_to_column(status_counts),
        "unreadable_batches": unreadable.batches,
        "unreadable_offsets": unreadable.offsets,
    }
    if not _apply(connection, lease, ReplayEvent.CHECKPOINT, values):
        return False
    record_failures(connection, lease, failures)
    if with_sample:
        add_samples(connection, [lease.replay_id], lease.epoch)
    return True


def store_receiver_failure(
    connection: Connection, lease: Lease, failure: ReceiverFailure | None
) -> bool:
    """Store the failed attempts of the replay; None once its receiver accepts events.

    False if the lease is gone.
    """
    values = {"receiver_failure": receiver_failure_to_column(failure)}
    return _apply(connection, lease, ReplayEvent.CHECKPOINT, values)


def complete(connection: Connection, lease: Lease) -> bool:
    """End the replay as COMPLETED: all events are delivered, duplicates, or listed as failed.

    False if the lease is gone.
    """
    return _apply_and_record(connection, lease, ReplayEvent.COMPLETE, {})


def fail(connection: Connection, lease: Lease, error: str) -> bool:
    """End the replay as FAILED because of `error`; False if the lease is gone."""
    values = {"error": error[:TEXT_CHARS_MAX]}
    return _apply_and_record(connection, lease, ReplayEvent.FAIL, values, error)


def fail_recovery(
    connection: Connection, lease: Lease, error: str, replay: Replay, *, is_due: bool
) -> bool:
    """End a recovery as FAILED, and recover its window again: now or once the webhook is enabled.

    False if the lease is gone.
    """
    if not fail(connection, lease, error):
        return False
    record = OutageRecord(replay.created_ms, replay.window)
    save_recovery(connection, replay.webhook_id, record, origin=replay.origin, is_recovered=is_due)
    return True


def release(connection: Connection, lease: Lease) -> bool:
    """Give the replay back with its checkpoint and its old place in the queue.

    Another worker can claim it at once. False if the lease is gone.
    """
    return _give_back(connection, lease, queued_since_ms(), None)


def yield_turn(connection: Connection, lease: Lease) -> bool:
    """Give the replay back to the end of its account's queue, because others wait.

    Another worker can claim it at once. False if the lease is gone.
    """
    return _give_back(connection, lease, now_ms(), None, "other replays have their turn")


def postpone(connection: Connection, lease: Lease, reason: str, pause_s: float) -> bool:
    """Give the replay back; it can be claimed after `pause_s`, and shows `reason` until then.

    False if the lease is gone.
    """
    return _give_back(connection, lease, ms_from_now(pause_s), reason[:TEXT_CHARS_MAX])


def _give_back(
    connection: Connection,
    lease: Lease,
    claimable_ms: ColumnElement[int],
    waiting_for: str | None,
    reason: str | None = None,
) -> bool:
    values = {
        "worker": None,
        "heartbeat_ms": now_ms(),
        "claimable_ms": claimable_from(claimable_ms),
        "waiting_for": waiting_for,
        "claims_in_vain": 0,
    }
    reason = reason or waiting_for
    return _apply_and_record(connection, lease, ReplayEvent.RELEASE, values, reason)


def _apply_and_record(
    connection: Connection,
    lease: Lease,
    event: ReplayEvent,
    values: Mapping[str, Any],
    reason: str | None = None,
) -> bool:
    """Apply the event, and record the move and a sample; False if the lease is gone."""
    if not _apply(connection, lease, event, values):
        return False
    (target,) = set(moves(event).values())
    moved = Moved(lease.replay_id, target, lease.epoch)
    record_moves(connection, MoveEvent(event), [moved], lease.worker, reason)
    add_samples(connection, [lease.replay_id], lease.epoch)
    return True


def _apply(
    connection: Connection, lease: Lease, event: ReplayEvent, values: Mapping[str, Any]
) -> bool:
    statement = transition(event, values).where(
        replays.c.id == lease.replay_id, replays.c.lease_epoch == lease.epoch
    )
    return connection.execute(statement).rowcount == 1
