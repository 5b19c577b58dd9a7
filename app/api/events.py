"""Routes of events: publish some, get one with its deliveries."""

from collections.abc import Callable, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.admission import CallerDependency, require_operator
from app.api.direct_route import DirectRoute
from app.api.event_bodies import read_json, read_ndjson
from app.api.models.documents import Acceptance, respond
from app.api.models.events import EventDocument
from app.api.openapi import ANY_ERROR, EVENTS_BODY, errors
from app.domain.accounts import Scope
from app.http.dependencies import ServicesDependency, services_of
from app.http.error_table import media_type_refused
from app.http.problems import (
    BODY_TOO_LARGE,
    BUSY,
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    UNAVAILABLE,
)
from app.http.request_bodies import EventId
from app.log.event import NewEvent
from app.services import event_lookup, events
from app.services.events import EventLimits
from app.services.services import now_ms

router = APIRouter(prefix="/events", tags=["events"], responses=ANY_ERROR)

_LOOP_BYTES_MAX: Final = 2_048
"""The size of a body that is read on the event loop: a thread would take longer to begin."""

_READERS: Final[Mapping[str, Callable[[bytes, EventLimits], list[NewEvent]]]] = {
    "application/json": read_json,
    "application/x-ndjson": read_ndjson,
}


async def publish_events(request: Request) -> Response:
    """Publish events: an object, an array, or NDJSON. All of them must be valid.

    An event with `webhookId` is addressed to that webhook, which must exist; without it, the rules
    select the webhooks. With `accountId`, only webhooks of that account can receive the event;
    without it, the rules of an account match what its grants cover.

    A time more than five minutes in the future is rejected, since such a record would mislead every
    later lookup by time; so is a time before the history, since no replay could request it. The
    receiver gets the JSON object `{"id", "type", "time", "data"}`.

    202 means that every event is stored in the log. After a 503 some may be: send all again;
    receivers and replays deduplicate events by id.
    """
    await require_operator(request)
    services = services_of(request)
    content_type = request.headers.get("content-type", "")
    reader = _READERS.get(content_type.partition(";")[0].strip().lower())
    body = await request.body()
    if reader is None:
        raise media_type_refused(content_type, ", ".join(_READERS))
    limits = EventLimits.of(services.settings, now_ms())
    if len(body) <= _LOOP_BYTES_MAX:
        found = reader(body, limits)
    else:
        # Ten thousand events take a while, in which the loop serves other requests.
        found = await run_in_threadpool(reader, body, limits)
    await events.publish_events(services, found)
    return respond(Acceptance(accepted=len(found)), 202)


router.add_api_route(
    "",
    publish_events,
    methods=["POST"],
    route_class_override=DirectRoute,
    operation_id="publishEvents",
    status_code=202,
    response_model=Acceptance,
    openapi_extra=EVENTS_BODY,
    responses=errors(
        INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BODY_TOO_LARGE, MEDIA_TYPE_REFUSED, UNAVAILABLE
    ),
)


# An id may have slashes.
@router.get(
    "/{event_id:path}",
    operation_id="getEvent",
    responses=errors(INVALID_REQUEST, NOT_FOUND, BUSY, UNAVAILABLE),
)
async def get_event(
    event_id: Annotated[EventId, Path(description="The id that its publisher gave it.")],
    services: ServicesDependency,
    caller: CallerDependency,
) -> EventDocument:
    """Get an event by its id: its payload and its deliveries.

    A developer gets events that are addressed to a webhook of the account. The log of this data
    centre is searched, through an index. 503 with `Retry-After` means that the event may be among
    records that are not indexed yet.
    """
    found = await event_lookup.get_event(services, caller, event_id)
    return EventDocument.of(found, is_operator=caller.scope is Scope.OPERATOR)
