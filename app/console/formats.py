"""Formats of numbers, sizes and times on pages, and of times in form fields. Pure."""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape

from app.domain.tallies import TOOK_MS_BOUNDS
from app.domain.windows import TimeUnreadable, format_time, parse_time

NOTHING: Final = "\N{EN DASH}"
"""Shown for a value that is absent."""

_SIZE_UNITS: Final = ("B", "kB", "MB", "GB", "TB")

_LOCAL: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)?"
)
"""The value of an `<input type=datetime-local>`, which has no time zone."""


class _TimeUnit(NamedTuple):
    name: str
    seconds: int


_TIME_UNITS: Final = tuple(
    _TimeUnit(*each) for each in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
)


def count(number: int | None) -> str:
    """Format a whole number with thousands separators."""
    return NOTHING if number is None else f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def rate(events_s: float | None) -> str:
    """Format a rate in events per second."""
    if events_s is None:
        return NOTHING
    return f"{events_s:.1f}/s" if events_s < 10 else f"{count(round(events_s))}/s"


def size(bytes_: float | None) -> str:
    """Format a number of bytes in decimal units."""
    if bytes_ is None:
        return NOTHING
    value = float(bytes_)
    for unit in _SIZE_UNITS:
        if value < 1_000 or unit == _SIZE_UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1_000
    raise AssertionError("the last unit has no upper bound")


def duration(seconds: float | None) -> str:
    """Format a duration in its two largest units."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 1:
        return f"{round(seconds * 1_000)} ms"
    whole = round(seconds)
    for large, small in pairwise(_TIME_UNITS):
        if whole >= large.seconds:
            rest = whole % large.seconds // small.seconds
            return f"{whole // large.seconds} {large.name}" + (
                f" {rest} {small.name}" if rest else ""
            )
    return f"{whole} s"


def at_most(latency_ms: float | None) -> str:
    """Format an upper bound of a latency; infinity exceeds the last histogram bucket."""
    if latency_ms is None:
        return NOTHING
    if latency_ms > TOOK_MS_BOUNDS[-1]:
        return f"> {count(TOOK_MS_BOUNDS[-1])} ms"
    return f"\N{LESS-THAN OR EQUAL TO} {count(round(latency_ms))} ms"


def percent(share: float | None) -> str:
    """Format a share of 1, rounded down, so that only 1 is shown as 100 %."""
    return NOTHING if share is None else f"{int(share * 1_000) / 10:.4g} %"


def moment(time_ms: int | None) -> str:
    """Format a time to the second, in UTC: `2026-11-22 08:04:32`."""
    return NOTHING if time_ms is None else _to_second(format_time(time_ms))


class TimePart(NamedTuple):
    """A part of the text of `moment`; the page's script needs it to show times in another zone."""

    start: int
    end: int

    def text(self, time_ms: int) -> str:
        """Return this part of the text of a time."""
        return moment(time_ms)[self.start : self.end]


MINUTE_OF_DAY: Final = TimePart(11, 16)
SECOND_OF_DAY: Final = TimePart(11, 19)
DAY_AND_MINUTE: Final = TimePart(5, 16)


def _to_second(iso: str) -> str:
    return iso[:19].replace("T", " ")


# Numbers need no escaping. A page has two hundred times, and escaping each took a third of the
# rendering time.
def time_tag(time_ms: int | None) -> str | Markup:
    """Return a `<time>` element."""
    if time_ms is None:
        return NOTHING
    iso = format_time(time_ms)
    return Markup(f'<time datetime="{iso}">{_to_second(iso)}</time>')  # noqa: S704  a number only


def time_part_tag(time_ms: int, part: TimePart) -> Markup:
    """Return a `<time>` element within an element that names the part as `data-part`."""
    iso = format_time(time_ms)
    return Markup(f'<time datetime="{iso}">{part.text(time_ms)}</time>')  # noqa: S704  a number only


def age_tag(time_ms: int | None, present_ms: int) -> str | Markup:
    """Return a `<time>` element with the time's age, which the page's script updates."""
    if time_ms is None:
        return NOTHING
    iso = format_time(time_ms)
    ago = duration(max(0, (present_ms - time_ms) // 1_000))
    return Markup(  # noqa: S704  two numbers only
        f'<time datetime="{iso}" title="{_to_second(iso)}" data-age>{ago} ago</time>'
    )


def preformatted(text: str) -> Markup:
    """Return the content of a `<pre>`, in which a browser would turn carriage returns into LF."""
    return escape(text).replace("\r", Markup("&#13;"))


def parse_field_time(text: str) -> int:
    """Return the time in a form field, in milliseconds since 1970. The default zone is UTC.

    Raises:
        TimeUnreadable: the text is not a time; `parse_time` lists the formats.
    """
    return parse_time(add_utc(text))


def add_utc(text: str) -> str:
    """Return the text of a form field in a format of the API: a local time gets the zone UTC."""
    if match := _LOCAL.fullmatch(text):
        return f"{match[1]}{match[2] or ':00'}Z"
    return text


def format_field_time(time_ms: int | None) -> str:
    """Format a time for a form field, without zero milliseconds: `2026-11-22T08:00:00`."""
    if time_ms is None:
        return ""
    text = format_time(time_ms).removesuffix("Z")
    return text.removesuffix(".000")


def input_type(text: str) -> str:
    """Return the type of input that can show a text: `datetime-local` drops invalid values."""
    is_local = not text or _LOCAL.fullmatch(text) is not None
    return "datetime-local" if is_local and _is_time(text) else "text"


def _is_time(text: str) -> bool:
    try:
        parse_field_time(text or "1970-01-01T00:00")
    except TimeUnreadable:
        return False
    return True


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "count": count,
    "rate": rate,
    "size": size,
    "duration": duration,
    "at_most": at_most,
    "percent": percent,
    "moment": moment,
    "iso": format_time,
    "field_time": format_field_time,
    "input_type": input_type,
    "time": time_tag,
    "time_part": time_part_tag,
    "age": age_tag,
    "preformatted": preformatted,
}
"""Template filters by name. `count` replaces Jinja's alias of `length`."""
