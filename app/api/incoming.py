"""Events as they come in: one JSON object, an array of them, or a line for each (NDJSON)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from app.api.models.documents import Time
from app.api.problems import BODY_TOO_LARGE, INVALID_REQUEST, FieldError, Problem, field_errors
from app.config import Settings
from app.domain.lateness import AHEAD_MS_MAX
from app.domain.windows import format_time
from app.log.event import OwedEvent

# Both become HTTP headers of the webhook. A full stop in the id would let a signed request be
# cut in another place (Standard Webhooks 1.0.0, "Signature scheme").
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
    """An event to put into the log; with `webhookId` it is owed to that webhook."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [EVENT_EXAMPLE]}
    )

    id: Annotated[str, Field(pattern=_ID)] = Field(
        description="Stays the same however often the event is sent; visible ASCII, no full stop."
    )
    type: Annotated[str, Field(pattern=_TYPE)] = Field(description="Such as `follow.created`.")
    time_ms: Time = Field(alias="time")
    webhook_id: str | None = Field(None, alias="webhookId", min_length=1, max_length=256)
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventRules:
    """What an event must keep to: its times in `[oldest_ms, newest_ms]`, its size, its number.

    A time ahead of the clock would stand in the way of every later look-up by time: the log
    finds the first record at or after a moment, and this one would be found long before its
    hour. An event older than the history is refused, because no replay could ask for it:
    what is accepted can be replayed.
    """

    oldest_ms: int
    newest_ms: int
    event_bytes_max: int
    events_max: int

    @property
    def times_allowed(self) -> str:
        """The times of events, in words."""
        return f"{format_time(self.oldest_ms)} to {format_time(self.newest_ms)}"

    @property
    def size_allowed(self) -> str:
        """The size of one event, in words."""
        return f"at most {self.event_bytes_max} bytes with id, type and time"

    @classmethod
    def of(cls, settings: Settings, now_ms: int) -> "EventRules":
        """The rules of `settings` as of `now_ms`."""
        return cls(
            oldest_ms=now_ms - settings.history_ms,
            newest_ms=now_ms + AHEAD_MS_MAX,
            event_bytes_max=settings.event_bytes_max,
            events_max=settings.events_per_request_max,
        )


_ONE: Final = TypeAdapter(IncomingEvent)
_MANY: Final = TypeAdapter(list[IncomingEvent])

# NaN and infinities, which Python's parsers let pass, are no JSON and are refused here.
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def read_json(body: bytes, rules: EventRules) -> list[OwedEvent]:
    """The events of a JSON body: an object is one event, an array holds any number.

    Raises:
        Problem: one of them is not valid, with its index; or there are too many.
    """
    is_array = body.lstrip(b" \t\r\n").startswith(b"[")
    root = "events" if is_array else ""
    try:
        events = _MANY.validate_json(body) if is_array else [_ONE.validate_json(body)]
    except ValidationError as error:
        raise _invalid(field_errors(error.errors(include_url=False), root)) from None
    return _checked(events, rules, root)


def read_ndjson(body: bytes, rules: EventRules) -> list[OwedEvent]:
    """The events of a body with one JSON object in each line; empty lines are skipped.

    Raises:
        Problem: one of them is not valid, with its index; or there are too many.
    """
    lines = [line for line in body.split(b"\n") if line.strip()]
    _check_number(len(lines), rules)
    return _checked([_line(index, line) for index, line in enumerate(lines)], rules, "events")


def _line(index: int, line: bytes) -> IncomingEvent:
    try:
        return _ONE.validate_json(line)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise _invalid(field_errors(details, f"events[{index}]")) from None


def _checked(events: Sequence[IncomingEvent], rules: EventRules, root: str) -> list[OwedEvent]:
    _check_number(len(events), rules)
    owed: list[OwedEvent] = []
    errors: list[FieldError] = []
    for index, event in enumerate(events):
        result = _owed(event, f"{root}[{index}]." if root else "", rules)
        if isinstance(result, OwedEvent):
            owed.append(result)
        else:
            errors.append(result)
    if errors:
        raise _invalid(errors)
    return owed


def _owed(event: IncomingEvent, path: str, rules: EventRules) -> OwedEvent | FieldError:
    time = format_time(event.time_ms)
    if not rules.oldest_ms <= event.time_ms <= rules.newest_ms:
        return FieldError(path + "time", time, rules.times_allowed)
    content = {"id": event.id, "type": event.type, "time": time, "data": event.data}
    try:
        body = _encode(content).encode()
    except ValueError:
        return FieldError(path + "data", None, "numbers that JSON has: no NaN, no Infinity")
    if len(body) > rules.event_bytes_max:
        return FieldError(path + "data", f"{len(body)} bytes", rules.size_allowed)
    return OwedEvent(event.webhook_id, event.id, event.type, event.time_ms, body)


def _check_number(count: int, rules: EventRules) -> None:
    if count > rules.events_max:
        allowed = f"at most {rules.events_max} events in a request"
        raise Problem.of_fields(BODY_TOO_LARGE, [FieldError("events", count, allowed)])


def _invalid(errors: Sequence[FieldError]) -> Problem:
    return Problem.of_fields(INVALID_REQUEST, errors)
