"""The periods that plots of deliveries show."""

from dataclasses import dataclass
from typing import Annotated, Final, Self

from fastapi import Query

from app.domain.hours import HOUR_MS
from app.domain.tallies import Span, last_hour_from_ms
from app.domain.windows import DAY_MS
from app.http.problems import INVALID_REQUEST, Problem
from app.services.errors import FieldError

RangeName = Annotated[str, Query(alias="range", max_length=10)]

BARS_MAX: Final = 60

_BAR_HOURS: Final = (1, 3, 6, 12, 24)
"""Lengths of bars; those of longer histories are multiples of a day."""

_DAY_H: Final = DAY_MS // HOUR_MS


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The period `[from_ms, to_ms)`, drawn with a bar for each `bar_ms`.

    The tallies of `span` are its data. `from_ms` is a multiple of `bar_ms`.
    """

    name: str
    """In URLs, such as "24h"."""

    words: str
    title: str
    span: Span
    from_ms: int
    to_ms: int
    bar_ms: int

    @classmethod
    def of_hours(cls, hours: int, unit: str, title: str, present_ms: int) -> Self:
        """Return the last `hours`, by hour of event time. `unit` is "h" or "d"."""
        number = hours if unit == "h" else hours // _DAY_H
        fitting = (each for each in _BAR_HOURS if hours <= each * BARS_MAX)
        bar_ms = HOUR_MS * next(fitting, -(-hours // BARS_MAX // _DAY_H) * _DAY_H)
        from_ms = (present_ms - hours * HOUR_MS) // bar_ms * bar_ms
        name, words = f"{number}{unit}", f"{number} {unit}"
        return cls(name, words, title, Span.EVENT, from_ms, present_ms, bar_ms)


def time_ranges(history_days: int, present_ms: int) -> tuple[TimeRange, ...]:
    """Return the last hour by five minutes, the last day, and the history, if it is longer."""
    span, from_ms = Span.SETTLED, last_hour_from_ms(present_ms)
    ranges = [
        TimeRange("1h", "1 h", "Last hour", span, from_ms, present_ms, span.width_ms),
        TimeRange.of_hours(_DAY_H, "h", "Last 24 hours", present_ms),
    ]
    if history_days > 1:
        title, hours = f"Last {history_days} days", history_days * _DAY_H
        ranges.append(TimeRange.of_hours(hours, "d", title, present_ms))
    return tuple(ranges)


def parse_range(name: str, ranges: tuple[TimeRange, ...]) -> TimeRange:
    """Return the range with a name; the first by default.

    Raises:
        Problem: no range has this name.
    """
    found = [each for each in ranges if name in (each.name, "")]
    if not found:
        error = FieldError("range", name, ", ".join(each.name for each in ranges))
        raise Problem.of_fields(INVALID_REQUEST, [error])
    return found[0]
