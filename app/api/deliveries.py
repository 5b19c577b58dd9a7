"""Routes of deliveries: list those of a webhook, and get one with its attempts."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.admission import CallerDependency
from app.api.models.deliveries import (
    DeliveriesDocument,
    DeliveryDetailDocument,
)
from app.api.openapi import errors
from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryStatus
from app.http.dependencies import Cursor, ServicesDependency
from app.http.problems import (
    BUSY,
    INVALID_REQUEST,
    NOT_FOUND,
    UNAVAILABLE,
    WINDOW_REFUSED,
)
from app.http.request_bodies import EventTypeGlob, Time
from app.log.deliveries import LIMIT_MAX
from app.services import deliveries

router = APIRouter(tags=["deliveries"])


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    operation_id="listDeliveries",
    responses=errors(INVALID_REQUEST, WINDOW_REFUSED, NOT_FOUND, BUSY, UNAVAILABLE),
)
async def list_deliveries(
    webhook_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    status: DeliveryStatus | None = None,
    event_type: Annotated[
        EventTypeGlob | None,
        Query(alias="eventType", description="Only of this event type; may have wildcards."),
    ] = None,
    event_id: Annotated[
        str | None,
        Query(
            alias="eventId",
            pattern=r"^[!-~]{1,256}$",
            description="Only deliveries of this event.",
        ),
    ] = None,
    from_ms: Annotated[
        Time | None,
        Query(alias="from", description="Events from this time on; by default a day before `to`."),
    ] = None,
    to_ms: Annotated[
        Time | None, Query(alias="to", description="Events before this time; by default now.")
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Deliveries per page.")] = 50,
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
        from_ms=from_ms,
        to_ms=to_ms,
        status=status,
        event_type=event_type,
        event_id=event_id,
        cursor=cursor,
        limit=limit,
    )
    return DeliveriesDocument.of(page)


@router.get(
    "/deliveries/{delivery_id}",
    operation_id="getDelivery",
    responses=errors(NOT_FOUND, BUSY, UNAVAILABLE),
)
async def get_delivery(
    delivery_id: str, services: ServicesDependency, caller: CallerDependency
) -> DeliveryDetailDocument:
    """Get a delivery: the event's body and headers, its status, and its live attempts."""
    found = await deliveries.get_delivery(services, caller, delivery_id)
    return DeliveryDetailDocument.of_detail(found, is_operator=caller.scope is Scope.OPERATOR)
