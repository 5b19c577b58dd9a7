"""Times as fields of forms have them: `datetime-local` knows no zone, and ours are of UTC. Pure."""

import re
from typing import Final

from app.domain.windows import TimeUnreadable, format_time, parse_time

_LOCAL: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)?"
)


def read_time(text: str) -> int:
    """The moment that a field names, in milliseconds since 1970: without a zone it is of UTC.

    Raises:
        TimeUnreadable: it names none; see `parse_time` for what else it may be.
    """
    return parse_time(with_zone(text))


def with_zone(text: str) -> str:
    """What a field holds, as the API reads it."""
    if match := _LOCAL.fullmatch(text):
        return f"{match[1]}{match[2] or ':00'}Z"
    return text


def field_time(time_ms: int | None) -> str:
    """A moment as a field shows it, no longer than it has to be: `2026-11-22T08:00:00`."""
    if time_ms is None:
        return ""
    text = format_time(time_ms).removesuffix("Z")
    return text.removesuffix(".000")


def input_type(text: str) -> str:
    """The type of the field that can show what was typed: a picker of times leaves some out."""
    is_local = not text or _LOCAL.fullmatch(text) is not None
    return "datetime-local" if is_local and _is_time(text) else "text"


def _is_time(text: str) -> bool:
    try:
        read_time(text or "1970-01-01T00:00")
    except TimeUnreadable:
        return False
    return True
