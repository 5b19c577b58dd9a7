"""Routes of deliveries: list those of a webhook or of several, get one, resend some."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from app.api.admission import CallerDependency
from app.api.models.deliveries import (
    DeliveriesDocument,
    DeliveryDetailDocument,
    ResendDocument,
    ResendsDocument,
    UndeliveredDocument,
)
from app.api.openapi import ANY_ERROR, errors
from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryStatus
from app.http.dependencies import AccountId, Cursor, MergedCursor, ServicesDependency
from app.http.problems import (
    BUSY,
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    TOO_MANY_RESENDS,
    UNAVAILABLE,
    WEBHOOK_NOT_ENABLED,
    WINDOW_REFUSED,
)
from app.http.request_bodies import EventId, EventTypeGlob, ResendRequest, Time
from app.log.deliveries import LIMIT_MAX
from app.services import deliveries
from app.services.deliveries import DeliverySelection
from app.services.errors import FieldError, InvalidRequest
from app.services.undelivered import list_undelivered

router = APIRouter(tags=["deliveries"], responses=ANY_ERROR)


def delivery_selection(
    status: DeliveryStatus | None = None,
    event_type: Annotated[
        EventTypeGlob | None,
        Query(alias="eventType", description="Only of this event type; may have wildcards."),
    ] = None,
    from_ms: Annotated[
        Time | None,
        Query(alias="from", description="Events from this time on; by default a day before `to`."),
    ] = None,
    to_ms: Annotated[
        Time | None, Query(alias="to", description="Events before this time; by default now.")
    ] = None,
) -> DeliverySelection:
    """The selection of a list, from its query parameters."""
    return DeliverySelection(status, event_type, from_ms, to_ms)


_Selection = Annotated[DeliverySelection, Depends(delivery_selection)]
_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Deliveries per page.")]


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    operation_id="listDeliveries",
    responses=errors(INVALID_REQUEST, WINDOW_REFUSED, NOT_FOUND, BUSY, UNAVAILABLE),
)
async def list_deliveries(
    webhook_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    selection: _Selection,
    event_id: Annotated[
        EventId | None, Query(alias="eventId", description="Only deliveries of this event.")
    ] = None,
    cursor: Cursor = None,
    limit: _Limit = 50,
) -> DeliveriesDocument:
    """List the deliveries of a webhook: pending ones first, then the others, last settled first.

    The list is read from the log of this data centre, and shows live deliveries. A page reads up to
    20,000 records; if it ends for that reason, `isPartial` is true, it may be empty, and
    `nextCursor` continues.
    """
    page = await deliveries.list_deliveries(
        services,
        caller,
        webhook_id,
        selection,
        event_id=event_id,
        cursor=cursor,
        limit=limit,
    )
    return DeliveriesDocument.model_validate(page)


@router.get(
    "/deliveries",
    operation_id="listUndelivered",
    responses=errors(INVALID_REQUEST, WINDOW_REFUSED, FORBIDDEN, BUSY, UNAVAILABLE),
)
async def list_undelivered_deliveries(
    services: ServicesDependency,
    caller: CallerDependency,
    selection: _Selection,
    account_id: AccountId = None,
    cursor: MergedCursor = None,
    limit: _Limit = 50,
) -> UndeliveredDocument:
    """List failed, pending or skipped deliveries of several webhooks, the latest first.

    `status` is required. The list has the ten webhooks with most such events in the hours of the
    window, by the statistics, which are some seconds old; pending ones are those of webhooks with
    events that wait for a retry. `omittedWebhooks` says how many others there are. All together, a
    page reads as much as a page of one webhook: up to 20,000 records. If it ends for that reason,
    `isPartial` is true, and the next page may have deliveries that are later than some of this one.
    """
    page = await list_undelivered(
        services, caller, selection, account_id=account_id, cursor=cursor, limit=limit
    )
    return UndeliveredDocument.model_validate(page)


@router.get(
    "/deliveries/{delivery_id}",
    operation_id="getDelivery",
    responses=errors(NOT_FOUND, BUSY, UNAVAILABLE),
)
async def get_delivery(
    delivery_id: str, services: ServicesDependency, caller: CallerDependency
) -> DeliveryDetailDocument:
    """Get a delivery: the event's body and headers, its status, and its attempts."""
    found = await deliveries.get_delivery(services, caller, delivery_id)
    return DeliveryDetailDocument.of_detail(found, is_operator=caller.scope is Scope.OPERATOR)


@router.post(
    "/deliveries/{delivery_id}/resend",
    operation_id="resendDelivery",
    status_code=202,
    responses=errors(NOT_FOUND, BUSY, WEBHOOK_NOT_ENABLED, TOO_MANY_RESENDS, UNAVAILABLE),
)
async def resend_delivery(
    delivery_id: str, response: Response, services: ServicesDependency, caller: CallerDependency
) -> ResendDocument:
    """Send a delivery once more, with the same event id; `GET /deliveries/{id}` shows the attempt.

    A worker makes one attempt. While it is pending, a repeated request returns the same resend.
    """
    (resend,) = await deliveries.resend_deliveries(services, caller, [delivery_id])
    response.headers["location"] = f"/deliveries/{delivery_id}"
    return ResendDocument.of(resend)


@router.post(
    "/webhooks/{webhook_id}/resend",
    operation_id="resendDeliveries",
    status_code=202,
    responses=errors(
        INVALID_REQUEST,
        WINDOW_REFUSED,
        NOT_FOUND,
        BUSY,
        WEBHOOK_NOT_ENABLED,
        TOO_MANY_RESENDS,
        MEDIA_TYPE_REFUSED,
        UNAVAILABLE,
    ),
)
async def resend_deliveries(
    webhook_id: str, body: ResendRequest, services: ServicesDependency, caller: CallerDependency
) -> ResendsDocument:
    """Send up to 100 deliveries of a webhook once more, all or none.

    Name either `deliveryIds`, or `eventIds` with the window to search. For more, create a replay.
    """
    if (body.delivery_ids is None) == (body.event_ids is None):
        allowed = "either `deliveryIds` or `eventIds`"
        raise InvalidRequest(fields=[FieldError("eventIds", body.event_ids, allowed)])
    if body.event_ids is None:
        assert body.delivery_ids is not None
        found = await deliveries.resend_deliveries(services, caller, body.delivery_ids, webhook_id)
    else:
        found = await deliveries.resend_events(
            services, caller, webhook_id, body.event_ids, from_ms=body.from_ms, to_ms=body.to_ms
        )
    return ResendsDocument(items=[ResendDocument.of(each) for each in found])
