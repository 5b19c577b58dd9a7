"""The fields by which a replay is asked for, as texts, and what the API reads of them. Pure."""

from collections.abc import Mapping
from typing import Final

from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.console.form_times import field_time, read_time, with_zone
from app.domain.model import Replay
from app.domain.options import EVENTS_PER_SECOND, Only, Source
from app.domain.windows import TimeUnreadable

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
"""What the form shows to who has said nothing, by the names that the API has for it."""

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
"""Windows that end now, in words, by their minutes."""


def last_window(minutes: str, now_ms: int) -> dict[str, str]:
    """The fields of one of the windows of `LAST`, which is one of this moment from then on.

    Raises:
        Problem: there is no such window.
    """
    if minutes not in LAST:
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("last", minutes, ", ".join(LAST))])
    to_ms = now_ms - now_ms % 1_000
    return {"from": field_time(to_ms - int(minutes) * _MINUTE_MS), "to": field_time(to_ms)}


def body_of(typed: Mapping[str, str]) -> dict[str, object]:
    """The body of a request to the API; what is empty is left to its own default."""
    body: dict[str, object] = {name: text for name, text in typed.items() if text}
    # A window and a webhook have none: that they are missing is said in one way.
    body |= {name: with_zone(typed[name]) for name in _TIMES if typed[name]}
    body |= {name: _number(typed[name]) for name in _NUMBERS if typed[name]}
    if typed["eventTypes"]:
        # Spaces and ends of lines stand between globs, which hold none.
        body["eventTypes"] = typed["eventTypes"].split()
    return body


def _number(text: str) -> int | str:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else text


def fields_of(given: Mapping[str, str]) -> dict[str, str]:
    """What a link says of a replay, as its fields show it: times in UTC, where they are times."""
    return {name: _shown(name, text.strip()) for name, text in given.items()}


def _shown(name: str, text: str) -> str:
    if name not in _TIMES or not text:
        return text
    try:
        return field_time(read_time(text))
    except TimeUnreadable:
        return text


def fields_of_replay(replay: Replay) -> dict[str, str]:
    """The fields of a replay like another one."""
    options = replay.options
    return {
        "webhookId": replay.webhook_id,
        "from": field_time(replay.window.from_ms),
        "to": field_time(replay.window.to_ms),
        "source": replay.source.value,
        "only": options.only.value,
        "eventTypes": "\n".join(options.event_types),
        "maxEventsPerSecond": str(options.max_events_per_second),
        "maxInFlight": "" if options.max_in_flight is None else str(options.max_in_flight),
        "batchSize": str(options.batch_size),
        "targetUrl": options.target_url or "",
    }
