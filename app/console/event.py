"""The page of an event: what was published, and its deliveries."""

from fastapi import APIRouter
from starlette.responses import Response

from app.console.delivery import shown_payload
from app.console.delivery_parts import version_of
from app.console.page_requests import ViewerRequest
from app.console.urls import DELIVERIES, PREFIX
from app.http.request_bodies import EventId
from app.services.event_lookup import get_event

router = APIRouter(prefix=PREFIX)


# An id may have slashes.
@router.get("/events/{event_id:path}")
async def event_page(event_id: EventId, request: ViewerRequest) -> Response:
    """Show an event that the viewer may see."""
    viewer = request.viewer
    found = await get_event(request.services, viewer.key, event_id)
    details = [each.detail for each in found.deliveries]
    deliveries = [each.summary for each in details]
    return await request.render(
        "event.html",
        event=found,
        account_id=found.account_id if viewer.is_operator else None,
        deliveries=deliveries,
        webhooks={each.detail.summary.id: each.webhook for each in found.deliveries},
        version_of=version_of,
        resending={each.summary.place for each in details if each.pending_resends},
        download_url=f"{DELIVERIES}/{deliveries[0].id}/payload" if deliveries else None,
        headers=found.header_texts(with_internal=viewer.is_operator),
        payload=shown_payload(found.body),
    )
