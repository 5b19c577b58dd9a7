"""How numbers, times and sizes are written on the pages. Pure."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from app.console.form_times import input_type
from app.domain.tallies import TOOK_MS_BOUNDS
from app.domain.windows import format_time

NOTHING: Final = "\N{EN DASH}"
"""What stands where there is nothing to tell."""

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class _Span(NamedTuple):
    name: str
    seconds: int


_SPANS: Final = (_Span("d", 86_400), _Span("h", 3_600), _Span("min", 60), _Span("s", 1))


def count(number: int | None) -> str:
    """A whole number, its thousands apart."""
    return NOTHING if number is None else f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def rate(events_s: float | None) -> str:
    """Events in a second."""
    if events_s is None:
        return NOTHING
    return f"{events_s:.1f}/s" if events_s < 10 else f"{count(round(events_s))}/s"


def size(bytes_: float | None) -> str:
    """A number of bytes in the unit that suits it, of a thousand each."""
    if bytes_ is None:
        return NOTHING
    value = float(bytes_)
    for unit in _UNITS:
        if value < 1_000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1_000
    raise AssertionError("the last unit has no end")


def duration(seconds: float | None) -> str:
    """A time span, in the two largest units that it has."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 1:
        return f"{round(seconds * 1_000)} ms"
    whole = round(seconds)
    for large, small in pairwise(_SPANS):
        if whole >= large.seconds:
            rest = whole % large.seconds // small.seconds
            return f"{whole // large.seconds} {large.name}" + (
                f" {rest} {small.name}" if rest else ""
            )
    return f"{whole} s"


def at_most(took_ms: float | None) -> str:
    """How long so many answers took at most; infinite is longer than the last class of tallies."""
    if took_ms is None:
        return NOTHING
    if took_ms > TOOK_MS_BOUNDS[-1]:
        return f"> {count(TOOK_MS_BOUNDS[-1])} ms"
    return f"\N{LESS-THAN OR EQUAL TO} {count(round(took_ms))} ms"


def percent(share: float | None) -> str:
    """A share of 1, rounded down, so that 100 % means all."""
    return NOTHING if share is None else f"{int(share * 1_000) / 10:.4g} %"


def moment(time_ms: int | None) -> str:
    """A time to the second, in UTC, which the page says once: `2026-11-22 08:04:32`."""
    return NOTHING if time_ms is None else _second(format_time(time_ms))


def _second(iso: str) -> str:
    return iso[:19].replace("T", " ")


# Numbers make no markup. A page has two hundred times: to escape each took a third of its making.
def time_tag(time_ms: int | None) -> str | Markup:
    """A time that machines can read too."""
    if time_ms is None:
        return NOTHING
    iso = format_time(time_ms)
    return Markup(f'<time datetime="{iso}">{_second(iso)}</time>')  # noqa: S704  of a number alone


def age_tag(time_ms: int | None, present_ms: int) -> str | Markup:
    """How long ago something was, which the script keeps true while the page is open."""
    if time_ms is None:
        return NOTHING
    iso = format_time(time_ms)
    ago = duration(max(0, (present_ms - time_ms) // 1_000))
    return Markup(  # noqa: S704  of two numbers alone
        f'<time datetime="{iso}" title="{_second(iso)}" data-age>{ago} ago</time>'
    )


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "count": count,
    "rate": rate,
    "size": size,
    "duration": duration,
    "at_most": at_most,
    "percent": percent,
    "moment": moment,
    "iso": format_time,
    "input_type": input_type,
    "time": time_tag,
    "age": age_tag,
}
"""By the names that templates have for them; Jinja's own `count` is `length` as well."""
