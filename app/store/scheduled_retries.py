"""Scheduled retries in the table of resends: creation, the next one, and replays that take over."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, func, insert, literal, select, update

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.delivery import LiveOutcome
from app.domain.handovers import LiveHandover
from app.domain.resends import ResendClaim, ResendResult
from app.domain.scheduled_retries import WAITING_MAX, NewScheduledRetry
from app.domain.tallies import SettledDelivery, tallies_of
from app.store.resend_tables import resends
from app.store.resends import finish_resend
from app.store.sql import TEXT_CHARS_MAX, ms_from_now, new_id, now_ms
from app.store.tallies import add_tallies

_row: Final = resends.c

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
    if connection.execute(select(_row.id).where(of_webhook, _is_at(new.place))).first():
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
    }
    connection.execute(insert(resends).values(values))
    return True


def _is_at(place: DeliveryPlace) -> ColumnElement[bool]:
    return and_(
        _row.origin == place.origin,
        _row.log_partition == place.partition,
        _row.record_offset == place.offset,
    )


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
        **{name: _row[name] for name in (*kept, "event_ms", "event_type")},
    }
    query = select(*next_one.values()).where(_row.id == claim.resend_id)
    connection.execute(insert(resends).from_select(list(next_one), query))
    return True


def recently_scheduled(
    connection: Connection, origin: str, partitions: Collection[int], age_ms: int
) -> frozenset[tuple[int, int]]:
    """Partition and offset of the events whose first retry was created in the last `age_ms`.

    Some may be delivered by now. Locks nothing.
    """
    query = select(_row.log_partition, _row.record_offset).where(
        _row.created_ms > now_ms() - age_ms,
        _row.origin == origin,
        _row.log_partition.in_(partitions),
        _row.retry_number == 0,
    )
    return frozenset((row.log_partition, row.record_offset) for row in connection.execute(query))


def scheduled_retries(connection: Connection, webhook_id: str) -> Mapping[DeliveryPlace, int]:
    """The deliveries of a webhook that wait for a scheduled retry, and when it is due."""
    query = select(_row.origin, _row.log_partition, _row.record_offset, _row.due_ms)
    rows = connection.execute(query.where(_row.webhook_id == webhook_id, _IS_WAITING))
    return {DeliveryPlace(*place): due_ms for *place, due_ms in rows}


def take_over_retries(
    connection: Connection, handover: LiveHandover, history_ms: int, *, origin: str
) -> int:
    """End the scheduled retries of the events that a replay sends instead.

    Their events are counted as skipped, for those of the last `history_ms`. Returns how many are
    being sent by workers, which have to end first. Locks the rows that it changes.
    """
    offsets = handover.offsets
    candidates = select(resends, (_row.due_ms <= now_ms()).label("is_due")).where(
        _row.webhook_id == handover.webhook_id,
        _row.origin == origin,
        _row.log_partition == offsets.partition,
        _row.record_offset >= offsets.start,
        _row.record_offset < offsets.end,
        _IS_WAITING,
    )
    in_flight, ended = 0, []
    for row in connection.execute(candidates).all():
        place = (row.log_partition, row.record_offset)
        if not handover.includes(*place, row.event_ms, row.event_type):
            continue
        # No worker sends one with an expired lease.
        is_idle = row.claims == 0 or row.is_due
        if is_idle and _end(connection, row.id, row.claims, handover.reason):
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
