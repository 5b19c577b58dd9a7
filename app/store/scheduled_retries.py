"""Scheduled retries in the table of resends: creation, the next one, and replays that take over."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    case,
    func,
    insert,
    literal,
    null,
    select,
    update,
)

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.delivery import LiveOutcome
from app.domain.handovers import LiveHandover
from app.domain.resends import Resend, ResendClaim, ResendResult
from app.domain.scheduled_retries import (
    COPIES_MAX,
    WAITING_MAX,
    NewScheduledRetry,
    RetryProgress,
    WaitingRetries,
)
from app.domain.tallies import SettledDelivery, tallies_of
from app.store.resend_tables import resends
from app.store.resends import PLACES_MAX, finish_resend, is_at, to_copies, to_resend, to_result
from app.store.sql import IDS_PER_QUERY, TEXT_CHARS_MAX, ms_from_now, new_id, now_ms
from app.store.tables import webhooks
from app.store.tallies import add_tallies

_row: Final = resends.c

_ATTEMPTS: Final = func.coalesce(_row.attempts, _row.retry_number + 1)
"""Those before a retry; one live attempt at least, in rows of a version that did not count them."""

_RESULT: Final = (
    *(_row.status, _row.finished_ms, _row.duration_us, _row.response_status, _row.reason),
    # Long, and not shown in lists.
    null().label("response"),
)
_PLACE: Final = (_row.origin, _row.log_partition, _row.record_offset)
_DUE_MS: Final = case((_row.claims == 0, _row.due_ms))
"""When a pending retry is due; NULL while a worker makes it."""

_IS_WAITING: Final = and_(
    _row.status == str(DeliveryStatus.PENDING), _row.retry_number.is_not(None)
)


def add_scheduled_retries(
    connection: Connection, new: Sequence[NewScheduledRetry]
) -> tuple[bool, ...]:
    """Create the first scheduled retry of each event; for each whether the event waits for one.

    False if the webhook has `WAITING_MAX`. An event that waits already, as after a crash of a live
    process, gets no second one. Locks the new rows.
    """
    return tuple(_add(connection, each) for each in new)


def _add(connection: Connection, new: NewScheduledRetry) -> bool:
    of_webhook = and_(_row.webhook_id == new.webhook_id, _IS_WAITING)
    at_place = select(_row.id, _row.copies).where(of_webhook, is_at(new.place))
    if waiting := connection.execute(at_place).first():
        if missing := set(new.copies).difference(to_copies(waiting.copies)):
            copies = _copies_text((*to_copies(waiting.copies), *sorted(missing)))
            connection.execute(update(resends).where(_row.id == waiting.id).values(copies=copies))
        return True
    count = select(func.count()).select_from(resends).where(of_webhook)
    if connection.execute(count).scalar_one() >= WAITING_MAX:
        return False
    origin, partition, offset = new.place
    values = {
        "id": new_id("rsd_"),
        "webhook_id": new.webhook_id,
        "origin": origin,
        "log_partition": partition,
        "record_offset": offset,
        "event_id": new.event_id[:TEXT_CHARS_MAX],
        "status": str(DeliveryStatus.PENDING),
        "created_ms": now_ms(),
        "due_ms": ms_from_now(new.pause_s),
        "claims": 0,
        "retry_number": 0,
        "event_ms": new.event_ms,
        "event_type": new.event_type[:TEXT_CHARS_MAX],
        "attempts": new.attempts,
        "copies": _copies_text(new.copies),
    }
    connection.execute(insert(resends).values(values))
    return True


def _copies_text(copies: Sequence[int]) -> str | None:
    return ",".join(map(str, copies[:COPIES_MAX])) or None


def retry_later(
    connection: Connection, claim: ResendClaim, result: ResendResult, pause_s: float
) -> bool:
    """Record a failed attempt, and create the next one; False if the retry was claimed again."""
    if not finish_resend(connection, claim, result):
        return False
    kept = ("webhook_id", "origin", "log_partition", "record_offset", "event_id")
    next_one: dict[str, ColumnElement[Any]] = {
        "id": literal(new_id("rsd_")),
        "status": literal(str(DeliveryStatus.PENDING)),
        "created_ms": now_ms(),
        "due_ms": ms_from_now(pause_s),
        "claims": literal(0),
        "retry_number": _row.retry_number + 1,
        "attempts": _ATTEMPTS + 1,
        **{name: _row[name] for name in (*kept, "event_ms", "event_type", "copies")},
    }
    query = select(*next_one.values()).where(_row.id == claim.resend_id)
    connection.execute(insert(resends).from_select(list(next_one), query))
    return True


def recently_scheduled(
    connection: Connection, origin: str, partitions: Collection[int], age_ms: int
) -> frozenset[tuple[int, int]]:
    """Partition and offset of the events whose first retry was created in the last `age_ms`.

    With those of their copies. Some may be delivered by now. Locks nothing.
    """
    query = select(_row.log_partition, _row.record_offset, _row.copies).where(
        _row.created_ms > now_ms() - age_ms,
        _row.origin == origin,
        _row.log_partition.in_(partitions),
        _row.retry_number == 0,
    )
    return frozenset(
        (partition, each)
        for partition, offset, copies in connection.execute(query)
        for each in (offset, *to_copies(copies))
    )


def list_retry_progress(
    connection: Connection, webhook_id: str
) -> Mapping[DeliveryPlace, RetryProgress]:
    """The deliveries of a webhook with scheduled retries, copies included, and how far these are.

    All that are pending, and those whose last retry is one of the latest `PLACES_MAX` that ended.
    """
    of_webhook = select(*_PLACE, _ATTEMPTS, _DUE_MS, _row.copies, *_RESULT).where(
        _row.webhook_id == webhook_id, _row.retry_number.is_not(None)
    )
    is_pending = _row.status == str(DeliveryStatus.PENDING)
    ended = of_webhook.where(~is_pending).order_by(_row.created_ms.desc()).limit(PLACES_MAX)
    found: dict[DeliveryPlace, RetryProgress] = {}
    copied: dict[DeliveryPlace, RetryProgress] = {}
    for query in (of_webhook.where(is_pending), ended):
        for row in connection.execute(query):
            origin, partition, offset, attempts, due_ms, copies = row[:6]
            place = DeliveryPlace(origin, partition, offset)
            # The latest retry of a delivery comes first.
            if place not in found:
                result = None if query is not ended else to_result(row)
                found[place] = RetryProgress.of_last(attempts, due_ms, result, row.finished_ms)
                for each in to_copies(copies):
                    copied.setdefault(place._replace(offset=each), found[place])
    # A copy that was read after the live attempts may have retries of its own.
    return {**copied, **found}


def retries_of_copy(
    connection: Connection, webhook_id: str, place: DeliveryPlace
) -> tuple[Resend, ...]:
    """The scheduled retries of the event of which a delivery is a copy, the oldest first."""
    query = (
        select(resends)
        .where(
            _row.webhook_id == webhook_id,
            _row.origin == place.origin,
            _row.log_partition == place.partition,
            # Copies follow their event in the log.
            _row.record_offset < place.offset,
            _row.copies.is_not(None),
        )
        .order_by(_row.created_ms, _row.id)
    )
    found = (to_resend(row) for row in connection.execute(query))
    return tuple(each for each in found if place in each.places)


def count_waiting_retries(
    connection: Connection, webhook_ids: Collection[str]
) -> dict[str, WaitingRetries]:
    """The events that wait for a scheduled retry, of the webhooks that have some."""
    found: dict[str, WaitingRetries] = {}
    ids = sorted(set(webhook_ids))
    for start in range(0, len(ids), IDS_PER_QUERY):
        query = (
            select(_row.webhook_id, func.count(), func.min(_DUE_MS))
            .where(_row.webhook_id.in_(ids[start : start + IDS_PER_QUERY]), _IS_WAITING)
            .group_by(_row.webhook_id)
        )
        for webhook_id, events, next_ms in connection.execute(query):
            found[webhook_id] = WaitingRetries(events, next_ms)
    return found


def count_all_waiting_retries(connection: Connection, is_webhook: ColumnElement[bool]) -> int:
    """The events that wait for a scheduled retry, of the existing webhooks with a condition."""
    row = webhooks.c
    # By webhook, as the index of resends begins with it.
    query = (
        select(func.count())
        .select_from(webhooks.join(resends, _row.webhook_id == row.id))
        .where(row.deleted_ms.is_(None), is_webhook, _IS_WAITING)
    )
    return int(connection.execute(query).scalar_one())


def retries_of_handover(
    connection: Connection, handover: LiveHandover, *, origin: str
) -> list[Resend]:
    """The scheduled retries that no worker is making, of the events that a replay sends instead."""
    rows = _rows_of(connection, handover, origin)
    return [to_resend(row) for row in rows if _is_idle(row)]


def _is_idle(row: Row[Any]) -> bool:
    # No worker sends one with an expired lease.
    return bool(row.claims == 0 or row.is_due)


def _rows_of(connection: Connection, handover: LiveHandover, origin: str) -> list[Row[Any]]:
    offsets = handover.offsets
    candidates = select(resends, (_row.due_ms <= now_ms()).label("is_due")).where(
        _row.webhook_id == handover.webhook_id,
        _row.origin == origin,
        _row.log_partition == offsets.partition,
        _row.record_offset >= offsets.start,
        _row.record_offset < offsets.end,
        _IS_WAITING,
    )
    return [
        row
        for row in connection.execute(candidates)
        if handover.includes(row.log_partition, row.record_offset, row.event_ms, row.event_type)
    ]


def take_over_retries(
    connection: Connection, handover: LiveHandover, history_ms: int, *, origin: str
) -> int:
    """End the scheduled retries of the events that a replay sends instead.

    Their events are counted as skipped, for those of the last `history_ms`. Returns how many are
    being sent by workers, which have to end first. Locks the rows that it changes.
    """
    in_flight, ended = 0, []
    for row in _rows_of(connection, handover, origin):
        if _is_idle(row) and _end(connection, row.id, row.claims, handover.reason):
            ended.append(row.event_ms)
        else:
            in_flight += 1
    # The replay, which sends the events, counts for what is missed until its creation.
    settled_ms = handover.requested_ms - 1
    counted = tallies_of(
        (
            SettledDelivery(handover.webhook_id, LiveOutcome.SKIPPED, event_ms, settled_ms, None)
            for event_ms in ended
        ),
        history_ms,
    )
    add_tallies(connection, counted, origin=origin)
    return in_flight


def _end(connection: Connection, resend_id: str, claims: int, reason: str) -> bool:
    is_unchanged = and_(_row.id == resend_id, _row.claims == claims, _IS_WAITING)
    values = {
        "due_ms": None,
        "status": str(DeliveryStatus.SKIPPED),
        "finished_ms": now_ms(),
        "reason": reason,
    }
    return connection.execute(update(resends).where(is_unchanged).values(values)).rowcount > 0
