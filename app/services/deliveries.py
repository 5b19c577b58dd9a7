"""Use cases of deliveries: list those of a webhook, and get one with its attempts."""

from dataclasses import replace

from anyio import to_thread

from app.domain.accounts import ApiKey
from app.domain.deliveries import DeliveryPlace, DeliveryStatus, parse_delivery_id
from app.domain.lateness import AHEAD_MS_MAX
from app.domain.model import Window
from app.log.deliveries import DeliveryDetail, DeliveryPage, DeliveryQuery
from app.log.errors import NotInLog
from app.services.errors import (
    DeliveryNotFound,
    FieldError,
    InvalidRequest,
)
from app.services.services import Services, now_ms
from app.store.errors import WebhookNotFound

DEFAULT_SPAN_MS = 86_400_000
"""The window of a list without `from`: a day."""


async def list_deliveries(
    services: Services,
    caller: ApiKey,
    webhook_id: str,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    status: DeliveryStatus | None = None,
    event_type: str | None = None,
    event_id: str | None = None,
    cursor: str | None = None,
    limit: int,
) -> DeliveryPage:
    """A page of the deliveries of a webhook, by default those of events of the last day.

    Raises:
        InvalidRequest: the window ends before it begins.
        WebhookNotFound: no such webhook, or it belongs to another account.
        RateLimited: the account has too many concurrent look-ups.
        The errors of `DeliveryReader.page`.
    """
    end_ms = now_ms() + AHEAD_MS_MAX if to_ms is None else to_ms
    start_ms = max(0, end_ms - DEFAULT_SPAN_MS) if from_ms is None else from_ms
    if start_ms >= end_ms:
        raise InvalidRequest(fields=[FieldError("from", start_ms, "a time before `to`")])
    query = DeliveryQuery(
        webhook_id,
        Window(start_ms, end_ms),
        status,
        event_type,
        event_id,
        cursor,
        limit,
        may_clip=from_ms is None,
    )

    def late_until_ms(window: Window) -> int | None:
        if to_ms is None:
            return None
        partition, origin = services.history.partition_for(webhook_id), services.settings.origin
        return services.store.late_recorded_ms(partition, window, origin=origin)

    def read() -> DeliveryPage:
        services.store.webhook(webhook_id, of_account=caller.account_filter)
        return services.deliveries.page(replace(query, late_until_ms=late_until_ms(query.window)))

    with services.delivery_slots.slot(caller):
        return await to_thread.run_sync(read)


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
            found = services.deliveries.delivery(place)
            webhook_id = found.summary.webhook_id
            services.store.webhook(webhook_id, of_account=caller.account_filter)
        except (NotInLog, WebhookNotFound):
            raise DeliveryNotFound(delivery_id) from None
        return found

    with services.delivery_slots.slot(caller):
        return await to_thread.run_sync(read)


def _place(delivery_id: str) -> DeliveryPlace:
    place = parse_delivery_id(delivery_id)
    if place is None:
        raise DeliveryNotFound(delivery_id)
    return place
