"""The table of replays as their owners see it: create, look up, list, cancel.

What workers do to it is in `leases`.
"""

from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from app.replay.model import Counts, IdempotencyKey, NewReplay, OffsetRange, Replay, Window
from app.replay.options import NoticeStyle
from app.replay.states import ReplayEvent, ReplayState
from app.store import stored_options, webhooks
from app.store.clock import now_ms
from app.store.errors import (
    ActiveReplayExists,
    IdempotencyConflict,
    NotCancellable,
    ReplayNotFound,
    WebhookNotFound,
)
from app.store.identity import exactly, new_replay_id
from app.store.pages import Page, newest_first
from app.store.tables import replays
from app.store.transitions import moved_by


def create(
    connection: Connection, new: NewReplay, idempotency: IdempotencyKey | None
) -> tuple[Replay, bool]:
    """The replay asked for, and whether it is new; not new when its key was used before.

    Locks the webhook's row until the transaction ends. Two unique columns hold against racers:
    the loser's INSERT fails, and when it looks again it finds the winner's replay here.

    Raises:
        WebhookNotFound: no such webhook, or it was deleted.
        ActiveReplayExists: the webhook has a replay that is not over.
        IdempotencyConflict: the key named a request with another fingerprint.
    """
    # First the lock, then the look: the rival whose replay this may be has committed by then.
    is_there = webhooks.lock(connection, new.webhook_id)
    if idempotency is not None:
        known = named_by(connection, idempotency)
        if known is not None:
            return known, False
    if not is_there:
        raise WebhookNotFound(new.webhook_id)
    _check_none_active(connection, new.webhook_id)
    replay_id = new_replay_id()
    connection.execute(
        insert(replays).values(
            id=replay_id,
            webhook_id=new.webhook_id,
            active_webhook_id=new.webhook_id,
            from_ms=new.window.from_ms,
            to_ms=new.window.to_ms,
            state=str(ReplayState.OPEN),
            claimable_ms=now_ms(),
            created_ms=now_ms(),
            idempotency_digest=idempotency and _digest(idempotency),
            request_fingerprint=idempotency and idempotency.fingerprint,
        )
    )
    return get(connection, replay_id), True


def named_by(connection: Connection, idempotency: IdempotencyKey) -> Replay | None:
    """The replay that was created under this key; None when there is none.

    Raises:
        IdempotencyConflict: the key named a request with another fingerprint.
    """
    query = select(replays).where(replays.c.idempotency_digest == _digest(idempotency))
    row = connection.execute(query).first()
    if row is None:
        return None
    if row.request_fingerprint != idempotency.fingerprint:
        raise IdempotencyConflict(idempotency.key, row.id)
    return to_replay(row)


def _digest(idempotency: IdempotencyKey) -> str:
    return sha256(idempotency.key.encode()).hexdigest()


def _check_none_active(connection: Connection, webhook_id: str) -> None:
    query = select(replays.c.id).where(replays.c.active_webhook_id == webhook_id)
    active_id = connection.execute(query).scalar()
    if active_id is not None:
        raise ActiveReplayExists(webhook_id, active_id)


def get(connection: Connection, replay_id: str) -> Replay:
    """The replay of this id.

    Raises:
        ReplayNotFound: there is none.
    """
    row = connection.execute(select(replays).where(exactly(replays.c.id, replay_id))).first()
    if row is None:
        raise ReplayNotFound(replay_id)
    return to_replay(row)


def newest(
    connection: Connection,
    webhook_id: str | None,
    state: ReplayState | None,
    cursor: str | None,
    limit: int,
) -> Page[Replay]:
    """A page of the replays of one webhook or all, in one state or all, the latest first."""
    query = select(replays)
    if webhook_id is not None:
        query = query.where(exactly(replays.c.webhook_id, webhook_id))
    if state is not None:
        query = query.where(replays.c.state == str(state))
    order = (replays.c.created_ms, replays.c.id)
    return newest_first(connection, query, order, cursor, limit, to_replay)


def cancel(connection: Connection, replay_id: str) -> Replay:
    """The replay, cancelled; who works on it learns so by its next write. Locks its row.

    Raises:
        ReplayNotFound: there is none.
        NotCancellable: it is over.
    """
    result = connection.execute(
        moved_by(ReplayEvent.CANCEL).where(exactly(replays.c.id, replay_id))
    )
    replay = get(connection, replay_id)
    if result.rowcount == 0:
        raise NotCancellable(replay_id, replay.state)
    return replay


def cancel_active_of(connection: Connection, webhook_id: str) -> None:
    """Cancel the webhook's replay that is not over, if there is one; locks its row."""
    statement = moved_by(ReplayEvent.CANCEL).where(replays.c.active_webhook_id == webhook_id)
    connection.execute(statement)


def to_replay(row: Row[Any]) -> Replay:
    """The value of a row of the table."""
    return Replay(
        id=row.id,
        account_id=row.account_id,
        webhook_id=row.webhook_id,
        window=Window(row.from_ms, row.to_ms),
        options=stored_options.of_column(row.options),
        retry_of=row.retry_of,
        notice=NoticeStyle(row.notice),
        state=ReplayState(row.state),
        lease_epoch=row.lease_epoch,
        claims_in_vain=row.claims_in_vain,
        worker=row.worker,
        offsets=_offsets(row),
        checkpoint=row.checkpoint_offset,
        counts=Counts(row.delivered, row.duplicates, row.failed),
        error=row.error,
        waiting_for=row.waiting_for,
        created_ms=row.created_ms,
        started_ms=row.started_ms,
        heartbeat_ms=row.heartbeat_ms,
        finished_ms=row.finished_ms,
    )


def _offsets(row: Row[Any]) -> OffsetRange | None:
    if row.log_partition is None:
        return None
    return OffsetRange(row.log_partition, row.start_offset, row.end_offset)
