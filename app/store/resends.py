"""The table of resends: a queue that workers claim from, and the results of the attempts.

Scheduled retries are resends, too: `scheduled_retries` creates them.

A claim postpones a resend by its lease, so that another worker claims it if no result is recorded.
A result names its claim, so a worker that was suspended changes nothing.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.model import OffsetRange
from app.domain.resends import (
    PENDING_MAX,
    PER_ACCOUNT_MAX,
    PER_WEBHOOK_MAX,
    RESEND_PREFIX,
    NewResend,
    Resend,
    ResendClaim,
    ResendResult,
    ScheduledRetry,
)
from app.domain.tallies import CountedTally
from app.store.errors import TooManyResends, WebhookNotFound
from app.store.resend_tables import resends
from app.store.sql import IDS_PER_QUERY, TEXT_CHARS_MAX, ms_from_now, new_id, now_ms
from app.store.tables import webhooks
from app.store.tallies import add_tallies
from app.store.webhooks import lock_webhook

_row: Final = resends.c

_CANDIDATES_MAX: Final = 20
"""Resends of a webhook that a worker tries to claim; others may claim them at the same time."""

_SHOWN_MAX: Final = 20
"""Resends of one delivery that are read, the latest."""

PLACES_MAX: Final = 2_000
"""Successful resends of one webhook that its lists consider, the latest."""

_IS_PENDING: Final = _row.status == str(DeliveryStatus.PENDING)
_IS_REQUESTED: Final = _row.retry_number.is_(None)
_HAS_SUCCEEDED: Final = _row.status == str(DeliveryStatus.SUCCEEDED)


def create_resends(
    connection: Connection,
    webhook_id: str,
    new: Sequence[NewResend],
    *,
    of_account: str | None = None,
) -> tuple[Resend, ...]:
    """Create a resend of each delivery; one that is pending already is returned instead.

    A scheduled retry that is pending becomes due at once. They are returned in the order of `new`.
    Locks the webhook's row until the commit.

    Raises:
        WebhookNotFound: see `webhooks`.
        TooManyResends: the webhook would have more than `PENDING_MAX` that are pending.
    """
    if lock_webhook(connection, webhook_id, of_account) is None:
        raise WebhookNotFound(webhook_id)
    rows = connection.execute(select(resends).where(_row.webhook_id == webhook_id, _IS_PENDING))
    pending: dict[DeliveryPlace, Resend] = {}
    for found in map(to_resend, rows):
        for place in found.places:
            pending.setdefault(place, replace(found, place=place))
    missing = {each.place: each for each in new if each.place not in pending}
    requested = sum(each.retry is None for each in pending.values())
    if requested + len(missing) > PENDING_MAX:
        raise TooManyResends(webhook_id, requested)
    for each in new:
        waiting = pending.get(each.place)
        if waiting is not None and waiting.retry is not None:
            advance = update(resends).where(_row.id == waiting.id, _IS_PENDING, _row.claims == 0)
            connection.execute(advance.values(due_ms=now_ms()))
    created_ms = int(connection.execute(select(now_ms())).scalar_one())
    for place, each in missing.items():
        pending[place] = Resend(new_id(RESEND_PREFIX), webhook_id, place, each.event_id, created_ms)
        connection.execute(
            insert(resends).values(
                id=pending[place].id,
                webhook_id=webhook_id,
                origin=place.origin,
                log_partition=place.partition,
                record_offset=place.offset,
                event_id=each.event_id[:TEXT_CHARS_MAX],
                status=str(DeliveryStatus.PENDING),
                created_ms=created_ms,
                due_ms=created_ms,
                claims=0,
            )
        )
    return tuple(pending[place] for place in dict.fromkeys(each.place for each in new))


def is_any_resend_due(connection: Connection, origin: str) -> bool:
    """Whether a resend of a data centre may be claimed."""
    # Only pending ones have a time: without their status, an index has all that are due together.
    query = select(_row.id).where(_row.origin == origin, _row.due_ms <= now_ms()).limit(1)
    return connection.execute(query).first() is not None


def claim_resends(
    connection: Connection,
    worker: str,
    lease_s: float,
    origin: str,
    limit: int,
    in_flight: Collection[ResendClaim],
) -> list[ResendClaim]:
    """Claim up to `limit` due resends of a data centre; the webhook that waits longest is first.

    With those of the worker that are `in_flight`, a webhook gets no more than `PER_WEBHOOK_MAX` and
    an account no more than `PER_ACCOUNT_MAX`. Locks the rows that it changes.
    """
    of_webhooks = Counter(each.webhook_id for each in in_flight)
    of_accounts = Counter(each.account_id for each in in_flight)
    claims: list[ResendClaim] = []
    for webhook in connection.execute(_waiting_webhooks(origin)).all():
        share = min(
            limit - len(claims),
            PER_WEBHOOK_MAX - of_webhooks[webhook.id],
            PER_ACCOUNT_MAX - of_accounts[webhook.account_id],
        )
        if share <= 0:
            continue
        candidates = (
            select(resends)
            .where(_row.webhook_id == webhook.id, _is_due(origin))
            .order_by(_row.due_ms, _row.id)
            .limit(_CANDIDATES_MAX)
        )
        for row in connection.execute(candidates).all():
            if share <= 0:
                break
            claim = ResendClaim(
                row.id,
                row.claims + 1,
                webhook.id,
                webhook.account_id,
                _place(row),
                _retry(row),
            )
            # Without a lock so far: another worker may have claimed it since.
            taken = update(resends).where(
                _row.id == row.id, _row.claims == row.claims, _row.due_ms.is_not(None)
            )
            values = {"due_ms": ms_from_now(lease_s), "claims": claim.claims, "worker": worker}
            if connection.execute(taken.values(values)).rowcount:
                share -= 1
                of_accounts[webhook.account_id] += 1
                claims.append(claim)
    return claims


def _is_due(origin: str) -> ColumnElement[bool]:
    return and_(_row.origin == origin, _IS_PENDING, _row.due_ms <= now_ms())


def _waiting_webhooks(origin: str) -> Select[Any]:
    """The webhooks with a due resend, the one that waits longest first, with their accounts.

    Reads one index only. MariaDB skips in it from webhook to webhook; SQLite reads the entries of
    all pending resends.
    """
    due_ms = func.min(_row.due_ms).label("due_ms")
    waiting = (
        select(_row.webhook_id, due_ms)
        .where(_row.origin == origin, _IS_PENDING)
        # With all leading columns of the index: MariaDB skips only then.
        .group_by(_row.origin, _row.status, _row.webhook_id)
        .subquery()
    )
    return (
        select(webhooks.c.id, webhooks.c.account_id)
        .join(waiting, waiting.c.webhook_id == webhooks.c.id)
        .where(waiting.c.due_ms <= now_ms())
        .order_by(waiting.c.due_ms, webhooks.c.id)
    )


def release_resend(connection: Connection, claim: ResendClaim, pause_s: float) -> bool:
    """Give up a claim before an attempt; it does not count. False if the resend was claimed again.

    The resend is due in `pause_s`.
    """
    values = {"due_ms": ms_from_now(pause_s), "claims": claim.claims - 1}
    return connection.execute(update(resends).where(_holds(claim)).values(values)).rowcount > 0


def finish_resend(
    connection: Connection,
    claim: ResendClaim,
    result: ResendResult,
    counted: Sequence[CountedTally] = (),
) -> bool:
    """Record the result of a claim; False if the resend was claimed again.

    `counted` are added to the tallies of its data centre.
    """
    values = {
        "due_ms": None,
        "status": str(result.status),
        "finished_ms": now_ms(),
        "duration_us": None if result.duration_ms is None else round(1_000 * result.duration_ms),
        "response_status": result.response_status,
        "reason": None if result.reason is None else result.reason[:TEXT_CHARS_MAX],
        "response": None if result.response is None else result.response[:TEXT_CHARS_MAX],
    }
    if not connection.execute(update(resends).where(_holds(claim)).values(values)).rowcount:
        return False
    add_tallies(connection, counted, origin=claim.place.origin)
    return True


def _holds(claim: ResendClaim) -> ColumnElement[bool]:
    """Whether the claim is the last one of a pending resend."""
    return and_(_row.id == claim.resend_id, _row.claims == claim.claims, _row.due_ms.is_not(None))


def is_at(place: DeliveryPlace) -> ColumnElement[bool]:
    """Whether a row is of the delivery at a place."""
    return and_(
        _row.origin == place.origin,
        _row.log_partition == place.partition,
        _row.record_offset == place.offset,
    )


def list_resends(
    connection: Connection, webhook_id: str, place: DeliveryPlace
) -> tuple[Resend, ...]:
    """The last resends of a delivery, the oldest first."""
    query = (
        select(resends)
        .where(_row.webhook_id == webhook_id, is_at(place))
        .order_by(_row.created_ms.desc(), _row.id.desc())
        .limit(_SHOWN_MAX)
    )
    return tuple(to_resend(row) for row in reversed(connection.execute(query).all()))


def resent_places(connection: Connection, webhook_id: str) -> frozenset[DeliveryPlace]:
    """The deliveries of a webhook with a successful resend; the latest `PLACES_MAX`."""
    query = (
        select(_row.origin, _row.log_partition, _row.record_offset)
        .where(_row.webhook_id == webhook_id, _HAS_SUCCEEDED)
        .order_by(_row.created_ms.desc())
        .limit(PLACES_MAX)
    )
    return frozenset(DeliveryPlace(*row) for row in connection.execute(query))


def pending_resends(connection: Connection, webhook_id: str) -> frozenset[DeliveryPlace]:
    """The deliveries of a webhook with a pending resend that was requested."""
    query: Select[Any] = select(_row.origin, _row.log_partition, _row.record_offset).where(
        _row.webhook_id == webhook_id, _IS_PENDING, _IS_REQUESTED
    )
    return frozenset(DeliveryPlace(*row) for row in connection.execute(query))


def resent_offsets(
    connection: Connection, webhook_id: str, offsets: OffsetRange, *, origin: str
) -> frozenset[int]:
    """The offsets of a range that a successful resend delivered to a webhook, copies included."""
    query = select(_row.record_offset, _row.copies).where(
        _row.webhook_id == webhook_id,
        _row.origin == origin,
        _row.log_partition == offsets.partition,
        _row.record_offset < offsets.end,
        # Copies follow their event in the log.
        or_(_row.record_offset >= offsets.start, _row.copies.is_not(None)),
        _HAS_SUCCEEDED,
    )
    found = (
        each
        for offset, copies in connection.execute(query)
        for each in (offset, *to_copies(copies))
    )
    return frozenset(each for each in found if offsets.start <= each < offsets.end)


def delete_old_resends(connection: Connection, kept_ms: int) -> int:
    """Delete resends that ended more than `kept_ms` ago, some at a time; returns how many."""
    is_old = and_(_row.created_ms < now_ms() - kept_ms, _row.due_ms.is_(None))
    found = select(_row.id).where(is_old).limit(IDS_PER_QUERY)
    ids = sorted(connection.execute(found).scalars())
    if not ids:
        return 0
    return connection.execute(delete(resends).where(_row.id.in_(ids))).rowcount


def _place(row: Row[Any]) -> DeliveryPlace:
    return DeliveryPlace(row.origin, row.log_partition, row.record_offset)


def to_resend(row: Row[Any]) -> Resend:
    """The resend of a row."""
    is_pending = row.status == DeliveryStatus.PENDING
    return Resend(
        id=row.id,
        webhook_id=row.webhook_id,
        place=_place(row),
        event_id=row.event_id,
        created_ms=row.created_ms,
        result=None if is_pending else to_result(row),
        finished_ms=row.finished_ms,
        worker=row.worker,
        retry=_retry(row),
        due_ms=row.due_ms if row.retry_number is not None and row.claims == 0 else None,
    )


def _retry(row: Row[Any]) -> ScheduledRetry | None:
    if row.retry_number is None:
        return None
    # One live attempt at least, in retries of a version that did not count them.
    attempts = row.retry_number + 1 if row.attempts is None else row.attempts
    return ScheduledRetry(
        row.retry_number,
        row.event_ms,
        attempts,
        row.event_id,
        row.event_type,
        to_copies(row.copies),
    )


def to_copies(text: str | None) -> tuple[int, ...]:
    """The offsets of the copies of an event, from their column."""
    return tuple(map(int, text.split(","))) if text else ()


def to_result(row: Row[Any]) -> ResendResult:
    """The result of the row of a resend that has ended."""
    return ResendResult(
        DeliveryStatus(row.status),
        None if row.duration_us is None else row.duration_us / 1_000,
        row.response_status,
        row.reason,
        row.response,
    )
