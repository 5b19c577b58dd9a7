"""Bodies of `POST /events`: a JSON object, an array, or NDJSON (an object per line)."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from app.domain.windows import TIME_ALLOWED, format_time
from app.http.problems import field_errors
from app.http.request_bodies import Time
from app.log.event import NewEvent
from app.services.errors import FieldError, InvalidRequest, TooManyEvents
from app.services.events import EventLimits

# Both become HTTP headers of the webhook. With a full stop in the id, the signed text could be
# split elsewhere (Standard Webhooks 1.0.0, "Signature scheme").
_ID: Final = r"^[!-\-/-~]{1,256}$"
_TYPE: Final = r"^[!-~]{1,256}$"

EVENT_EXAMPLE: Final[dict[str, JsonValue]] = {
    "id": "evt_31f6",
    "type": "follow.created",
    "time": "2026-11-21T08:00:00Z",
    "webhookId": "wh_2yPqkM5dTn4v",
    "data": {"source": "u_17", "target": "u_4"},
}


class IncomingEvent(BaseModel):
    """An event to publish; with `webhookId` it is addressed to that webhook.

    With `accountId`, only webhooks of that account can receive it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [EVENT_EXAMPLE]}
    )

    id: Annotated[str, Field(pattern=_ID)] = Field(
        description="The same for every delivery of the event; visible ASCII without full stops."
    )
    type: Annotated[str, Field(pattern=_TYPE)] = Field(description="Such as `follow.created`.")
    time_ms: Time | None = Field(
        None, alias="time", description=f"When it happened: {TIME_ALLOWED}. Default: now."
    )
    webhook_id: str | None = Field(None, alias="webhookId", min_length=1, max_length=256)
    account_id: str | None = Field(
        None,
        alias="accountId",
        min_length=1,
        max_length=256,
        description="The only account whose webhooks may receive it. Without it, an event reaches "
        "an account by rules as far as its grants cover it.",
    )
    data: dict[str, Any]


_ONE: Final = TypeAdapter(IncomingEvent)
_MANY: Final = TypeAdapter(list[IncomingEvent])


def _encode(content: dict[str, Any]) -> bytes:
    """Compact JSON.

    Raises:
        ValueError: a number is NaN or infinite: the parser accepts these, but JSON does not.
    """
    encoded = to_json(content)
    if b"NaN" in encoded or b"Infinity" in encoded:
        json.dumps(content, allow_nan=False)
    return encoded


def read_json(body: bytes, limits: EventLimits) -> list[NewEvent]:
    """The events of a JSON body: an object is one event, an array any number.

    Raises:
        InvalidRequest: with the index and the fields of each event that is not valid.
        TooManyEvents.
    """
    is_array = body.lstrip(b" \t\r\n").startswith(b"[")
    root = "events" if is_array else ""
    try:
        events = _MANY.validate_json(body) if is_array else [_ONE.validate_json(body)]
    except ValidationError as error:
        raise InvalidRequest(fields=field_errors(error.errors(include_url=False), root)) from None
    return _records(events, limits, root)


def read_ndjson(body: bytes, limits: EventLimits) -> list[NewEvent]:
    """The events of a body with a JSON object per line; empty lines are skipped.

    Raises:
        InvalidRequest: with the index and the fields of each event that is not valid.
        TooManyEvents.
    """
    lines = [line for line in body.split(b"\n") if line.strip()]
    _check_number(len(lines), limits)
    return _records([_read_line(index, line) for index, line in enumerate(lines)], limits, "events")


def _read_line(index: int, line: bytes) -> IncomingEvent:
    try:
        return _ONE.validate_json(line)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InvalidRequest(fields=field_errors(details, f"events[{index}]")) from None


def _records(events: Sequence[IncomingEvent], limits: EventLimits, root: str) -> list[NewEvent]:
    _check_number(len(events), limits)
    records: list[NewEvent] = []
    errors: list[FieldError] = []
    for index, event in enumerate(events):
        result = _record(event, f"{root}[{index}]." if root else "", limits)
        if isinstance(result, NewEvent):
            records.append(result)
        else:
            errors.append(result)
    if errors:
        raise InvalidRequest(fields=errors)
    return records


def _record(event: IncomingEvent, path: str, limits: EventLimits) -> NewEvent | FieldError:
    time_ms = limits.now_ms if event.time_ms is None else event.time_ms
    time = format_time(time_ms)
    if not limits.oldest_ms <= time_ms <= limits.newest_ms:
        return FieldError(path + "time", time, limits.times_allowed)
    content = {"id": event.id, "type": event.type, "time": time, "data": event.data}
    try:
        body = _encode(content)
    except ValueError:
        return FieldError(path + "data", None, "JSON numbers, without NaN and Infinity")
    if len(body) > limits.event_bytes_max:
        return FieldError(path + "data", f"{len(body)} bytes", limits.size_allowed)
    return NewEvent(event.webhook_id, event.id, event.type, time_ms, body, event.account_id)


def _check_number(count: int, limits: EventLimits) -> None:
    if count > limits.events_max:
        allowed = f"at most {limits.events_max} events in a request"
        raise TooManyEvents(fields=[FieldError("events", count, allowed)])
