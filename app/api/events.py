"""The route of events: into the log, and acknowledged by it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from app.api.access import OperatorOnly
from app.api.doors import Doors, DoorsDependency, now_ms
from app.api.incoming import EventRules, read_json, read_ndjson
from app.api.models.documents import Acceptance
from app.api.openapi import EVENTS_BODY, refusals
from app.api.problems import (
    BODY_TOO_LARGE,
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    UNAVAILABLE,
    FieldError,
    Problem,
)
from app.api.refusals import media_type_refused
from app.domain.lateness import Arrival
from app.log.event import OwedEvent
from app.log.late_notes import note_late
from app.log.topics import DELIVERY_LOG, EVENTS

router = APIRouter(prefix="/events", tags=["events"])

_READERS: Final[Mapping[str, Callable[[bytes, EventRules], list[OwedEvent]]]] = {
    "application/json": read_json,
    "application/x-ndjson": read_ndjson,
}


@router.post(
    "",
    operation_id="publishEvents",
    status_code=202,
    openapi_extra=EVENTS_BODY,
    responses=refusals(
        INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BODY_TOO_LARGE, MEDIA_TYPE_REFUSED, UNAVAILABLE
    ),
    dependencies=[OperatorOnly],
)
async def publish_events(request: Request, doors: DoorsDependency) -> Acceptance:
    """Put events into the log: one, an array, or one in each line. All are valid, or none is taken.

    With `webhookId` an event is owed to that webhook, which must exist; without, the rules
    decide. A time more than five minutes ahead is refused, since a record from the future would
    mislead every later look-up by time; so is one older than the history, since no replay could
    ask for it. The receiver gets the JSON object `{"id", "type", "time", "data"}`.

    202 says that every event is in the log for good. After a 503 some may be: send them all
    again, receivers and replays know an event by its id.
    """
    media_type = request.headers.get("content-type", "")
    body = await request.body()
    # Reading ten thousand events takes a while in which others want to be served.
    events = await run_in_threadpool(_read, doors, media_type, body)
    owed = [event for event in events if event.webhook_id is not None]
    unowed = [event for event in events if event.webhook_id is None]
    await asyncio.gather(
        _publish_owed(doors, owed),
        _publish(doors, EVENTS, unowed),
    )
    return Acceptance(accepted=len(events))


def _read(doors: Doors, media_type: str, body: bytes) -> list[OwedEvent]:
    reader = _READERS.get(media_type.partition(";")[0].strip().lower())
    if reader is None:
        raise media_type_refused(media_type, ", ".join(_READERS))
    events = reader(body, EventRules.of(doors.settings, now_ms()))
    _check_webhooks(doors, events)
    return events


def _check_webhooks(doors: Doors, events: Sequence[OwedEvent]) -> None:
    wanted = {event.webhook_id for event in events if event.webhook_id is not None}
    unknown = doors.store.find_unknown_webhooks(wanted) if wanted else set()
    if unknown:
        errors = [
            FieldError(f"events[{index}].webhookId", event.webhook_id, "the id of a webhook")
            for index, event in enumerate(events)
            if event.webhook_id in unknown
        ]
        raise Problem.of_fields(NOT_FOUND, errors)


async def _publish_owed(doors: Doors, events: Sequence[OwedEvent]) -> None:
    """Put events into the log, and note of those that are late where replays will find them."""
    arrivals = await _publish(doors, DELIVERY_LOG, events)
    settings = doors.settings
    await note_late(
        doors.store,
        arrivals,
        origin=settings.origin,
        lateness_ms=settings.lateness_ms,
        retention_ms=settings.retention_ms,
    )


async def _publish(doors: Doors, topic: str, events: Sequence[OwedEvent]) -> list[Arrival]:
    if not events:
        return []
    arrivals = await doors.publisher.publish(topic, events)
    doors.metrics.count_events(topic, len(events))
    return arrivals
