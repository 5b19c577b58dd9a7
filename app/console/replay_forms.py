"""The fields of the new replay form, and the API request body with their values. Pure."""

from collections.abc import Mapping
from typing import Final

from app.console.formats import add_utc, format_field_time, parse_field_time
from app.domain.model import Replay
from app.domain.options import EVENTS_PER_SECOND, Only, Source
from app.domain.windows import TimeUnreadable
from app.http.problems import INVALID_REQUEST, Problem
from app.services.errors import FieldError

DEFAULTS: Final[Mapping[str, str]] = {
    "webhookId": "",
    "from": "",
    "to": "",
    "source": Source.LOG.value,
    "only": Only.ALL.value,
    "eventTypes": "",
    "maxEventsPerSecond": str(EVENTS_PER_SECOND),
    "maxInFlight": "",
    "batchSize": "1",
    "targetUrl": "",
}
"""The initial values of the form, by the API's names."""

FIELDS: Final = tuple(DEFAULTS)

_TIMES: Final = ("from", "to")
_NUMBERS: Final = ("maxEventsPerSecond", "maxInFlight", "batchSize")
_DIGITS_MAX: Final = 18

_MINUTE_MS: Final = 60_000

LAST: Final[Mapping[str, str]] = {
    "15": "15 minutes",
    "60": "hour",
    "360": "6 hours",
    "1440": "24 hours",
    "4320": "3 days",
}
"""The windows that end now: minutes and label."""


def last_window(minutes: str, now_ms: int) -> dict[str, str]:
    """Return the fields of a window of `LAST` that ends now.

    Raises:
        Problem: the window is not in `LAST`.
    """
    if minutes not in LAST:
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("last", minutes, ", ".join(LAST))])
    to_ms = now_ms - now_ms % 1_000
    return {
        "from": format_field_time(to_ms - int(minutes) * _MINUTE_MS),
        "to": format_field_time(to_ms),
    }


def request_body(typed: Mapping[str, str]) -> dict[str, object]:
    """Return the API request body. Empty fields are left out, so the API's defaults apply."""
    body: dict[str, object] = {name: text for name, text in typed.items() if text}
    body |= {name: add_utc(typed[name]) for name in _TIMES if typed[name]}
    body |= {name: _parse_number(typed[name]) for name in _NUMBERS if typed[name]}
    if typed["eventTypes"]:
        # Globs contain no white space.
        body["eventTypes"] = typed["eventTypes"].split()
    return body


def _parse_number(text: str) -> int | str:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else text


def prefilled_fields(given: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that a link prefills, with times in UTC."""
    return {name: _format_field(name, text.strip()) for name, text in given.items()}


def _format_field(name: str, text: str) -> str:
    if name not in _TIMES or not text:
        return text
    try:
        return format_field_time(parse_field_time(text))
    except TimeUnreadable:
        return text


def replay_fields(replay: Replay) -> dict[str, str]:
    """Return the fields that clone a replay."""
    options = replay.options
    return {
        "webhookId": replay.webhook_id,
        "from": format_field_time(replay.window.from_ms),
        "to": format_field_time(replay.window.to_ms),
        "source": replay.source.value,
        "only": options.only.value,
        "eventTypes": "\n".join(options.event_types),
        "maxEventsPerSecond": str(options.max_events_per_second),
        "maxInFlight": "" if options.max_in_flight is None else str(options.max_in_flight),
        "batchSize": str(options.batch_size),
        "targetUrl": options.target_url or "",
    }
