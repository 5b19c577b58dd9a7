"""Use cases of deliveries: list those of a webhook, get one with its attempts, resend some."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from anyio import to_thread

from app.domain.accounts import ApiKey, Scope
from app.domain.deliveries import DeliveryPlace, DeliveryReplay, DeliveryStatus, parse_delivery_id
from app.domain.lateness import AHEAD_MS_MAX
from app.domain.model import Webhook, WebhookStatus, Window
from app.domain.resends import NewResend, Resend, attempt_of
from app.domain.scheduled_retries import RetryProgress
from app.domain.windows import not_retained
from app.log.deliveries import DeliveryDetail, DeliveryPage, DeliveryQuery, DeliverySummary
from app.log.errors import NotInLog, WindowNotRetained
from app.log.event import LoggedEvent
from app.log.topics import DELIVERY_OUTCOMES
from app.replay_workers.replayed import read_replays_of
from app.services.errors import (
    DeliveriesNotRetained,
    DeliveryNotFound,
    EventNotFound,
    FieldError,
    InvalidRequest,
    WebhookNotEnabled,
)
from app.services.services import Services, now_ms
from app.store.errors import WebhookNotFound

DEFAULT_SPAN_MS = 86_400_000
"""The window of a list without `from`: a day."""

TABLES_NAMED_MAX: Final = 5

PAGES_MAX: Final = 10
"""Pages that are read to find the deliveries of events."""


@dataclass(frozen=True, slots=True)
class DeliverySelection:
    """What to list, by default the last day: the fields are as in `DeliveryQuery`."""

    status: DeliveryStatus | None = None
    event_type: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None


async def list_deliveries(
    services: Services,
    caller: ApiKey,
    webhook_id: str,
    selection: DeliverySelection,
    *,
    event_id: str | None = None,
    cursor: str | None = None,
    limit: int,
) -> DeliveryPage:
    """A page of the deliveries of a webhook, or of those of one event.

    Raises:
        InvalidRequest: the window ends before it begins.
        WebhookNotFound: no such webhook, or it belongs to another account.
        RateLimited: the account has too many concurrent look-ups.
        DeliveriesNotRetained: the log no longer has the window.
        The other errors of `DeliveryReader.page`.
    """
    query = DeliveryQuery(
        (webhook_id,),
        window_of(selection.from_ms, selection.to_ms),
        selection.status,
        selection.event_type,
        None if event_id is None else frozenset((event_id,)),
        cursor,
        limit,
        may_clip=selection.from_ms is None,
    )

    def read() -> DeliveryPage:
        completed = _completed(services, caller, query, selection.to_ms)
        with older_deliveries_named(services, caller):
            return services.deliveries.page(completed)

    with services.delivery_slots.slot(caller):
        return await to_thread.run_sync(read)


@contextmanager
def older_deliveries_named(services: Services, caller: ApiKey) -> Iterator[None]:
    """Translate `WindowNotRetained` into an error that says where older deliveries are.

    Raises:
        DeliveriesNotRetained: the log no longer has the window.
    """
    try:
        yield
    except WindowNotRetained as error:
        refused = not_retained(error.from_ms, error.available_from_ms)
        raise DeliveriesNotRetained(refused, _older_deliveries(services, caller)) from None


def _older_deliveries(services: Services, caller: ApiKey) -> str:
    """Where deliveries are that the log no longer has, in words; empty if nowhere."""
    loads = services.store.latest_pipeline_runs("load", limit=TABLES_NAMED_MAX).items
    tables = [each.subject for each in loads if _has_loaded_deliveries(services, each.subject)]
    if not tables:
        return ""
    if caller.scope is not Scope.OPERATOR:
        return "operators have older deliveries in tables"
    return f"older deliveries are in tables of the nightly load: {', '.join(tables)}"


def _has_loaded_deliveries(services: Services, table: str) -> bool:
    runs = services.store.pipeline_runs("load", table).items
    return any(DELIVERY_OUTCOMES in each.topics for each in runs)


def window_of(from_ms: int | None, to_ms: int | None) -> Window:
    """The window of a list, by default the last day.

    Raises:
        InvalidRequest: the window ends before it begins.
    """
    end_ms = now_ms() + AHEAD_MS_MAX if to_ms is None else to_ms
    start_ms = max(0, end_ms - DEFAULT_SPAN_MS) if from_ms is None else from_ms
    if start_ms >= end_ms:
        raise InvalidRequest(fields=[FieldError("from", start_ms, "a time before `to`")])
    return Window(start_ms, end_ms)


def _completed(
    services: Services, caller: ApiKey, query: DeliveryQuery, to_ms: int | None
) -> DeliveryQuery:
    """The query of one webhook with what the database has about it.

    Raises:
        WebhookNotFound: no such webhook, or it belongs to another account.
    """
    (webhook_id,) = query.webhook_ids
    services.store.webhook(webhook_id, of_account=caller.account_filter)
    partition = None if to_ms is None else services.history.partition_for(webhook_id)
    return with_stored(services, query, partition)


def with_stored(services: Services, query: DeliveryQuery, partition: int | None) -> DeliveryQuery:
    """The query with retries, resends and, for the `partition` of events, late events. Blocks."""
    store = services.store
    late_until_ms = None
    if partition is not None:
        origin = services.settings.origin
        late_until_ms = store.late_recorded_ms(partition, query.window, origin=origin)
    retries: dict[DeliveryPlace, RetryProgress] = {}
    resent: set[DeliveryPlace] = set()
    for webhook_id in query.webhook_ids:
        # The retries first: one that succeeds meanwhile is seen at least once.
        retries |= store.retry_progress(webhook_id)
        resent |= store.resent_places(webhook_id)
    return replace(query, late_until_ms=late_until_ms, resent=frozenset(resent), retries=retries)


async def get_delivery(services: Services, caller: ApiKey, delivery_id: str) -> DeliveryDetail:
    """A delivery of a webhook of the caller.

    Raises:
        DeliveryNotFound: no such delivery, the log has deleted it, or it belongs to another
            account.
        RateLimited: the account has too many concurrent look-ups.
        InspectionsBusy, LogUnavailable
    """
    place = _place(delivery_id)

    def read() -> DeliveryDetail:
        try:
            found, _ = read_delivery(services, place, of_account=caller.account_filter)
        except (NotInLog, WebhookNotFound):
            raise DeliveryNotFound(delivery_id) from None
        return found

    with services.delivery_slots.slot(caller):
        return await to_thread.run_sync(read)


def read_delivery(
    services: Services, place: DeliveryPlace, *, of_account: str | None = None
) -> tuple[DeliveryDetail, Webhook]:
    """A delivery with its replays and resends, and its webhook. Blocks.

    Raises:
        NotInLog: no such delivery, or the log has deleted it.
        WebhookNotFound: the webhook was deleted, or belongs to another account.
        InspectionsBusy, LogUnavailable
    """
    found = services.deliveries.delivery(place)
    webhook = services.store.webhook(found.summary.webhook_id, of_account=of_account)
    found = replace(found, replays=_replays_of(services, found))
    return _with_resends(found, _resends_of(services, found)), webhook


def _resends_of(services: Services, found: DeliveryDetail) -> tuple[Resend, ...]:
    """The resends of a delivery, and the retries of the event of which it is a copy."""
    store, webhook_id, place = services.store, found.summary.webhook_id, found.summary.place
    resends = store.resends(webhook_id, place)
    has_own_retries = any(each.retry is not None for each in resends)
    is_final = found.summary.status in (DeliveryStatus.SUCCEEDED, DeliveryStatus.SKIPPED)
    if has_own_retries or is_final:
        return resends
    return (*store.retries_of_copy(webhook_id, place), *resends)


def _replays_of(services: Services, found: DeliveryDetail) -> tuple[DeliveryReplay, ...]:
    summary, place = found.summary, found.summary.place
    event = LoggedEvent(
        offset=place.offset,
        key=summary.webhook_id.encode(),
        event_id=summary.event_id,
        event_type=summary.event_type,
        timestamp_ms=summary.time_ms,
        value=found.body,
    )
    is_delivered = summary.status is DeliveryStatus.SUCCEEDED
    return read_replays_of(
        services.store, event, place.partition, origin=place.origin, is_delivered=is_delivered
    )


def _with_resends(found: DeliveryDetail, resends: Sequence[Resend]) -> DeliveryDetail:
    last = max((each.number for each in found.attempts), default=0)
    made = [attempt_of(each, last + n) for n, each in enumerate(resends, start=1)]
    attempts = [*found.attempts, *(each for each in made if each is not None)]
    pending = [each for each in resends if each.status is DeliveryStatus.PENDING]
    summary = found.summary
    # The oldest is first.
    for each in reversed(resends):
        if each.retry is not None:
            progress = (each.retry.attempts, each.due_ms, each.result, each.finished_ms)
            summary = summary.with_retries(RetryProgress.of_last(*progress))
            break
    if any(each.status is DeliveryStatus.SUCCEEDED for each in resends):
        summary = summary.after_resend()
    return replace(
        found,
        summary=summary,
        attempts=tuple(sorted(attempts, key=lambda each: each.time_ms)),
        pending_resends=sum(each.retry is None for each in pending),
    )


async def resend_deliveries(
    services: Services, caller: ApiKey, delivery_ids: Sequence[str], webhook_id: str | None = None
) -> tuple[Resend, ...]:
    """The resends of deliveries; a worker sends each once more. Of a webhook, all or none are.

    A delivery with a pending resend is not resent twice.

    Raises:
        DeliveryNotFound: a delivery does not exist, or is not one of this webhook or account.
        WebhookNotEnabled: nothing may be sent to the webhook.
        RateLimited: the account has too many concurrent look-ups.
        TooManyResends, LogUnavailable, WebhookNotFound
    """

    def create() -> tuple[Resend, ...]:
        if webhook_id is not None:
            services.store.webhook(webhook_id, of_account=caller.account_filter)
        found = [_delivery(services, each, webhook_id) for each in delivery_ids]
        by_webhook: dict[str, list[DeliverySummary]] = {}
        for each in found:
            by_webhook.setdefault(each.webhook_id, []).append(each)
        try:
            # All of them before the first resend.
            for receiver_id in by_webhook:
                _check_enabled(services, caller, receiver_id)
            return tuple(
                resend
                for receiver_id, deliveries in by_webhook.items()
                for resend in _create_resends(services, caller, receiver_id, deliveries)
            )
        except WebhookNotFound:
            raise DeliveryNotFound(delivery_ids[0]) from None

    with services.delivery_slots.slot(caller):
        resends = await to_thread.run_sync(create)
    return _announced(services, resends)


async def resend_events(
    services: Services,
    caller: ApiKey,
    webhook_id: str,
    event_ids: Sequence[str],
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> tuple[Resend, ...]:
    """The resends of the latest deliveries of events to a webhook, all or none.

    The deliveries are searched among those of a window, by default of the last day.

    Raises:
        EventNotFound: an event has no delivery in the window, or was not found in time.
        The errors of `list_deliveries` and `resend_deliveries`.
    """
    missing = dict.fromkeys(event_ids)
    query = DeliveryQuery(
        (webhook_id,),
        window_of(from_ms, to_ms),
        event_ids=frozenset(missing),
        limit=len(missing),
        may_clip=from_ms is None,
    )

    def create() -> tuple[Resend, ...]:
        found = _find(services, _completed(services, caller, query, to_ms))
        if unknown := [each for each in missing if each not in found]:
            raise EventNotFound(unknown, "eventIds")
        return _create_resends(services, caller, webhook_id, [found[each] for each in missing])

    with services.delivery_slots.slot(caller):
        resends = await to_thread.run_sync(create)
    return _announced(services, resends)


def _find(services: Services, query: DeliveryQuery) -> dict[str, DeliverySummary]:
    """The latest deliveries of the query's events, by event id."""
    found: dict[str, DeliverySummary] = {}
    for _ in range(PAGES_MAX):
        page = services.deliveries.page(query)
        for each in page.items:
            found.setdefault(each.event_id, each)
        if len(found) == query.limit or page.next_cursor is None:
            break
        query = replace(query, cursor=page.next_cursor)
    return found


def _create_resends(
    services: Services, caller: ApiKey, webhook_id: str, deliveries: Sequence[DeliverySummary]
) -> tuple[Resend, ...]:
    _check_enabled(services, caller, webhook_id)
    new = [NewResend(each.place, each.event_id) for each in deliveries]
    return services.store.create_resends(webhook_id, new, of_account=caller.account_filter)


def _check_enabled(services: Services, caller: ApiKey, webhook_id: str) -> None:
    webhook = services.store.webhook(webhook_id, of_account=caller.account_filter)
    if webhook.status is not WebhookStatus.ENABLED:
        wrong = FieldError("status", webhook.status, WebhookStatus.ENABLED)
        raise WebhookNotEnabled(f"webhook {webhook.id!r} is {webhook.status}", [wrong])


def _announced(services: Services, resends: tuple[Resend, ...]) -> tuple[Resend, ...]:
    """The resends, of which idle workers hear at once."""
    services.replay_requests.publish(resends[0].id)
    return resends


def _delivery(services: Services, delivery_id: str, webhook_id: str | None) -> DeliverySummary:
    try:
        found, _ = services.deliveries.event(_place(delivery_id))
    except NotInLog:
        raise DeliveryNotFound(delivery_id) from None
    if webhook_id is not None and found.webhook_id != webhook_id:
        raise DeliveryNotFound(delivery_id)
    return found


def _place(delivery_id: str) -> DeliveryPlace:
    place = parse_delivery_id(delivery_id)
    if place is None:
        raise DeliveryNotFound(delivery_id)
    return place
