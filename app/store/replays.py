"""The table of replays: create and read one.

`replay_filters` lists replays, `owner_moves` pauses, resumes and cancels them, and `leases` has
what workers do. `of_account` limits a function to the replays of one account; None means all.
"""

from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, String, bindparam, func, insert, select

from app.domain.model import (
    Counts,
    IdempotencyKey,
    NewReplay,
    OffsetRange,
    Replay,
    UnreadableCounts,
    Window,
    unread_offsets,
)
from app.domain.moves import Move, MoveEvent
from app.domain.options import NoticeStyle, ReplayReason, Source
from app.domain.receiver_failure import ReceiverFailure
from app.domain.states import ACTIVE, ReplayState
from app.store.claim_queue import claimable_now
from app.store.errors import (
    ActiveReplayExists,
    IdempotencyConflict,
    NothingToRetry,
    ReplayNotFound,
    ReplayNotOver,
    WebhookNotFound,
)
from app.store.moves import Moved, read_moves, record_moves
from app.store.replay_columns import (
    awaits_from_column,
    awaits_to_column,
    options_from_column,
    options_to_column,
    receiver_failure_from_column,
    status_counts_from_column,
)
from app.store.sql import exactly, new_id, now_ms
from app.store.tables import replay_failures, replays
from app.store.webhooks import lock_webhook


def create_replay(
    connection: Connection,
    new: NewReplay,
    idempotency: IdempotencyKey | None = None,
    *,
    of_account: str | None = None,
    actor: str | None = None,
) -> tuple[Replay, bool]:
    """Create a replay and return it with True; an idempotency key in use returns its replay.

    The second value is False if the key was used before for the same request. A key is valid as
    long as its replay exists; each account has its own keys. `actor` is the id of the API key.

    Locks the webhook's row until the commit. Two unique columns reject concurrent creations: the
    INSERT of the second one fails, and its retry finds the replay of the first.

    Raises:
        WebhookNotFound: see `webhooks`.
        ActiveReplayExists: the webhook has an active replay.
        IdempotencyConflict: the key was used for another request.
        ReplayNotFound, ReplayNotOver, NothingToRetry: see `NewReplay.retry_of`.
    """
    # Locks before it reads: a concurrent creation with the same key has committed by then.
    webhook = lock_webhook(connection, new.webhook_id, of_account)
    if idempotency is not None:
        existing = find_replay_by_idempotency_key(connection, idempotency, of_account=of_account)
        if existing is not None:
            return existing, False
    if webhook is None:
        raise WebhookNotFound(new.webhook_id)
    offsets = None
    if new.retry_of is not None:
        offsets = _offsets_to_retry(connection, new.retry_of, of_account)
    check_no_active_replay(connection, new.webhook_id)
    replay_id = new_id("rpl_")
    connection.execute(
        insert(replays).values(
            id=replay_id,
            account_id=webhook.account_id,
            webhook_id=new.webhook_id,
            active_webhook_id=new.webhook_id,
            from_ms=new.window.from_ms,
            to_ms=new.window.to_ms,
            options=options_to_column(new.options),
            retry_of=new.retry_of,
            notice=str(new.notice),
            origin=new.origin,
            source=str(new.source),
            reason=str(new.reason),
            awaits=awaits_to_column(new.awaits),
            **_offset_columns(offsets if new.source is Source.ARCHIVE else None),
            state=str(ReplayState.OPEN),
            claimable_ms=None if new.awaits else claimable_now(new.source),
            created_ms=now_ms(),
            idempotency_digest=idempotency and _digest(idempotency, of_account),
            request_fingerprint=idempotency and idempotency.fingerprint,
        )
    )
    record_moves(connection, MoveEvent.CREATE, [Moved(replay_id, ReplayState.OPEN, 0)], actor)
    return get_replay(connection, replay_id), True


def find_replay_by_idempotency_key(
    connection: Connection, idempotency: IdempotencyKey, *, of_account: str | None = None
) -> Replay | None:
    """The replay that was created with this key for this request; None if the key is unused.

    Raises:
        IdempotencyConflict: the key was used for another request.
    """
    digest = _digest(idempotency, of_account)
    row = connection.execute(select(replays).where(replays.c.idempotency_digest == digest)).first()
    if row is None:
        return None
    if row.request_fingerprint != idempotency.fingerprint:
        raise IdempotencyConflict(idempotency.key, row.id)
    return to_replay(row)


def _digest(idempotency: IdempotencyKey, of_account: str | None) -> str:
    """Different for each account; operators share one set of keys."""
    owner = "" if of_account is None else f"{of_account}\0"
    return sha256(f"{owner}{idempotency.key}".encode()).hexdigest()


def offsets_to_retry(connection: Connection, replay_id: str) -> OffsetRange | None:
    """The range of what an ended replay failed to deliver or did not reach.

    None if it ended before the offsets of its window were known.

    Raises:
        ReplayNotFound: see `get_replay`.
        NothingToRetry: it delivered everything, or its records were never restored.
    """
    return _range_to_retry(connection, get_replay(connection, replay_id))


def _offsets_to_retry(
    connection: Connection, replay_id: str, of_account: str | None
) -> OffsetRange | None:
    """The same at the creation of the retry. Locks the replay's row."""
    # The lock excludes that the replay is deleted as an old one at the same time.
    replay = lock_replay(connection, replay_id, of_account)
    if replay.state in ACTIVE:
        raise ReplayNotOver(replay_id, replay.state)
    return _range_to_retry(connection, replay)


def _range_to_retry(connection: Connection, replay: Replay) -> OffsetRange | None:
    if replay.offsets is None:
        if replay.state is ReplayState.COMPLETED or replay.source is Source.ARCHIVE:
            raise NothingToRetry(replay.id)
        return None
    offset = replay_failures.c.record_offset
    query = select(func.min(offset), func.max(offset))
    first, last = connection.execute(query.where(replay_failures.c.replay_id == replay.id)).one()
    unread = unread_offsets(replay)
    if first is None and unread is None:
        raise NothingToRetry(replay.id)
    if unread is None:
        return OffsetRange(replay.offsets.partition, first, last + 1)
    # Failures lie below the checkpoint.
    return unread if first is None else replace(unread, start=first)


def _offset_columns(offsets: OffsetRange | None) -> dict[str, int]:
    """The columns of offsets that are known at the creation, as for a retry of the archive."""
    if offsets is None:
        return {}
    return {
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
    }


def check_no_active_replay(connection: Connection, webhook_id: str) -> None:
    """Return if the webhook has no active replay.

    Raises:
        ActiveReplayExists: it has one.
    """
    query = select(replays.c.id).where(replays.c.active_webhook_id == webhook_id)
    active_id = connection.execute(query).scalar()
    if active_id is not None:
        raise ActiveReplayExists(webhook_id, active_id)


# Built once: building a query takes longer than its execution on SQLite.
_BY_ID: Final = select(replays).where(exactly(replays.c.id, bindparam("replay_id", type_=String)))
_OF_ACCOUNT: Final = _BY_ID.where(replays.c.account_id == bindparam("of_account"))


def _select_one(of_account: str | None) -> Select[Any]:
    return _BY_ID if of_account is None else _OF_ACCOUNT


def get_replay(connection: Connection, replay_id: str, *, of_account: str | None = None) -> Replay:
    """The replay with this id.

    Raises:
        ReplayNotFound: no replay has this id, or it belongs to another account.
    """
    return _find(connection, _select_one(of_account), replay_id, of_account)


def list_moves(
    connection: Connection, replay_id: str, *, of_account: str | None = None
) -> tuple[Move, ...]:
    """The replay's creation and its latest moves, about 200, oldest first.

    Raises:
        ReplayNotFound: see `get_replay`.
    """
    get_replay(connection, replay_id, of_account=of_account)
    return read_moves(connection, replay_id)


def _find(
    connection: Connection, query: Select[Any], replay_id: str, of_account: str | None
) -> Replay:
    parameters = {"replay_id": replay_id, "of_account": of_account}
    row = connection.execute(query, parameters).first()
    if row is None:
        raise ReplayNotFound(replay_id)
    return to_replay(row)


def lock_replay(connection: Connection, replay_id: str, of_account: str | None = None) -> Replay:
    """The replay, whose row is locked until the commit.

    Raises:
        ReplayNotFound: see `get_replay`.
    """
    query = _select_one(of_account).with_for_update()
    return _find(connection, query, replay_id, of_account)


def to_replay(row: Row[Any]) -> Replay:
    """The replay of a row of the table."""
    counts = Counts(row.delivered, row.duplicates, row.failed)
    return Replay(
        id=row.id,
        account_id=row.account_id,
        origin=row.origin,
        source=Source(row.source),
        webhook_id=row.webhook_id,
        window=Window(row.from_ms, row.to_ms),
        options=options_from_column(row.options),
        retry_of=row.retry_of,
        notice=NoticeStyle(row.notice),
        state=ReplayState(row.state),
        lease_epoch=row.lease_epoch,
        claims_without_progress=row.claims_in_vain,
        worker=row.worker,
        offsets=_offsets(row),
        checkpoint=row.checkpoint_offset,
        counts=counts,
        status_counts=status_counts_from_column(row.status_counts, counts),
        receiver_failure=_receiver_failure(row),
        unreadable=UnreadableCounts(row.unreadable_batches, row.unreadable_offsets),
        error=row.error,
        waiting_for=row.waiting_for,
        awaits=awaits_from_column(row.awaits),
        idle_ms=row.idle_ms,
        created_ms=row.created_ms,
        started_ms=row.started_ms,
        heartbeat_ms=row.heartbeat_ms,
        finished_ms=row.finished_ms,
        reason=ReplayReason(row.reason),
        available_from_ms=row.available_from_ms,
    )


def _receiver_failure(row: Row[Any]) -> ReceiverFailure | None:
    # A worker that stops leaves its last one.
    is_current = row.state == ReplayState.ONGOING
    return receiver_failure_from_column(row.receiver_failure) if is_current else None


def _offsets(row: Row[Any]) -> OffsetRange | None:
    if row.log_partition is None:
        return None
    return OffsetRange(row.log_partition, row.start_offset, row.end_offset)
