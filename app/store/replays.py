"""The table of replays: ask for one, look it up.

How lists show them is in `replay_filters`, how owners move them in `owner_moves`, and what workers
do in `leases`.
"""

from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, insert, select, true

from app.domain.model import Counts, IdempotencyKey, NewReplay, OffsetRange, Replay, Window
from app.domain.moves import MoveEvent
from app.domain.options import NoticeStyle, Source
from app.domain.states import ACTIVE, ReplayState
from app.store import failures, moves, stored_options, stored_restore, stored_statuses, webhooks
from app.store.claiming import Queue
from app.store.clock import now_ms
from app.store.errors import (
    ActiveReplayExists,
    IdempotencyConflict,
    ReplayNotFound,
    ReplayNotOver,
    WebhookNotFound,
)
from app.store.identity import exactly, new_replay_id
from app.store.tables import replays


def create(
    connection: Connection,
    new: NewReplay,
    idempotency: IdempotencyKey | None,
    of_account: str | None,
    actor: str | None,
) -> tuple[Replay, bool]:
    """The replay asked for, and whether it is new; not new when its key was used before.

    Locks the webhook's row until the transaction ends. Two unique columns hold against racers:
    the loser's INSERT fails, and when it looks again it finds the winner's replay here.

    Raises:
        WebhookNotFound: no such webhook, it was deleted, or it is another account's.
        ActiveReplayExists: the webhook has a replay that is not over.
        IdempotencyConflict: the key named a request with another fingerprint.
        ReplayNotFound, ReplayNotOver, NothingToRetry: see `NewReplay.retry_of`.
    """
    # First the lock, then the look: the rival whose replay this may be has committed by then.
    webhook = webhooks.lock(connection, new.webhook_id, of_account)
    if idempotency is not None:
        known = named_by(connection, idempotency, of_account)
        if known is not None:
            return known, False
    if webhook is None:
        raise WebhookNotFound(new.webhook_id)
    offsets = None
    if new.retry_of is not None:
        offsets = _offsets_to_retry(connection, new.retry_of, of_account)
    _check_none_active(connection, new.webhook_id)
    replay_id = new_replay_id()
    connection.execute(
        insert(replays).values(
            id=replay_id,
            account_id=webhook.account_id,
            webhook_id=new.webhook_id,
            active_webhook_id=new.webhook_id,
            from_ms=new.window.from_ms,
            to_ms=new.window.to_ms,
            options=stored_options.to_column(new.options),
            retry_of=new.retry_of,
            notice=str(new.notice),
            origin=new.origin,
            source=str(new.source),
            awaits=stored_restore.to_column(new.awaits),
            **_place(offsets if new.source is Source.ARCHIVE else None),
            state=str(ReplayState.OPEN),
            claimable_ms=None if new.awaits else now_ms() + Queue(source=new.source).shift_ms,
            created_ms=now_ms(),
            idempotency_digest=idempotency and _digest(idempotency, of_account),
            request_fingerprint=idempotency and idempotency.fingerprint,
        )
    )
    created = moves.Moved(replay_id, ReplayState.OPEN, 0)
    moves.note(connection, MoveEvent.CREATE, [created], actor)
    return get(connection, replay_id), True


def named_by(
    connection: Connection, idempotency: IdempotencyKey, of_account: str | None
) -> Replay | None:
    """The replay that was created under this key; None when there is none.

    Raises:
        IdempotencyConflict: the key named a request with another fingerprint.
    """
    digest = _digest(idempotency, of_account)
    row = connection.execute(select(replays).where(replays.c.idempotency_digest == digest)).first()
    if row is None:
        return None
    if row.request_fingerprint != idempotency.fingerprint:
        raise IdempotencyConflict(idempotency.key, row.id)
    return to_replay(row)


def _digest(idempotency: IdempotencyKey, of_account: str | None) -> str:
    """Each account has keys of its own, and so have those who see all accounts."""
    owner = "" if of_account is None else f"{of_account}\0"
    return sha256(f"{owner}{idempotency.key}".encode()).hexdigest()


def _offsets_to_retry(
    connection: Connection, replay_id: str, of_account: str | None
) -> OffsetRange:
    """Where what a replay gave up lies, from the first to the last."""
    replay = get(connection, replay_id, of_account)
    if replay.state in ACTIVE:
        raise ReplayNotOver(replay_id, replay.state)
    start, end = failures.span(connection, replay_id)
    assert replay.offsets is not None, "who gave something up knew where it read"
    return OffsetRange(replay.offsets.partition, start, end)


def _place(offsets: OffsetRange | None) -> dict[str, int]:
    """The columns of a range that is known from the beginning: nobody else can need its records."""
    if offsets is None:
        return {}
    return {
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
    }


def _check_none_active(connection: Connection, webhook_id: str) -> None:
    query = select(replays.c.id).where(replays.c.active_webhook_id == webhook_id)
    active_id = connection.execute(query).scalar()
    if active_id is not None:
        raise ActiveReplayExists(webhook_id, active_id)


def _is_of(of_account: str | None) -> ColumnElement[bool]:
    return true() if of_account is None else replays.c.account_id == of_account


def _it(replay_id: str, of_account: str | None) -> Select[Any]:
    return select(replays).where(exactly(replays.c.id, replay_id), _is_of(of_account))


def get(connection: Connection, replay_id: str, of_account: str | None = None) -> Replay:
    """The replay of this id, if it belongs to the account; None is any account.

    Raises:
        ReplayNotFound: there is none, or it is another account's.
    """
    return _found(replay_id, connection.execute(_it(replay_id, of_account)).first())


def _found(replay_id: str, row: Row[Any] | None) -> Replay:
    if row is None:
        raise ReplayNotFound(replay_id)
    return to_replay(row)


def locked(connection: Connection, replay_id: str, of_account: str | None = None) -> Replay:
    """The replay, which nobody else changes before the transaction ends.

    Raises:
        ReplayNotFound: see `get`.
    """
    query = _it(replay_id, of_account).with_for_update()
    return _found(replay_id, connection.execute(query).first())


def to_replay(row: Row[Any]) -> Replay:
    """The value of a row of the table."""
    counts = Counts(row.delivered, row.duplicates, row.failed)
    return Replay(
        id=row.id,
        account_id=row.account_id,
        origin=row.origin,
        source=Source(row.source),
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
        counts=counts,
        status_counts=stored_statuses.of_column(row.status_counts, counts),
        error=row.error,
        waiting_for=row.waiting_for,
        awaits=stored_restore.of_column(row.awaits),
        idle_ms=row.idle_ms,
        created_ms=row.created_ms,
        started_ms=row.started_ms,
        heartbeat_ms=row.heartbeat_ms,
        finished_ms=row.finished_ms,
    )


def _offsets(row: Row[Any]) -> OffsetRange | None:
    if row.log_partition is None:
        return None
    return OffsetRange(row.log_partition, row.start_offset, row.end_offset)
