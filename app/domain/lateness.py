"""Events that reach the log long after their time, and where in the log they lie.

A replay finds where its window ends by looking a time up: the end is before the first record that
is so much younger than the window that nothing on time can follow it. Records may lie in the wrong
order by as much as one may be behind its time and another before it ahead. What is later than that
lies behind any such end, so it is noted where it lies, and replays of its time reach up to there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.model import Window
from app.domain.windows import MINUTE_MS

AHEAD_MS_MAX: Final = 5 * MINUTE_MS
"""How far an event's time may lie ahead of our clock, for clocks that differ a little."""


class Arrival(NamedTuple):
    """An event's time, and the record that it became."""

    time_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LateSpan:
    """Late events of one partition: their times lie in `window`, their offsets below `end`."""

    partition: int
    window: Window
    end: int


def disorder_ms(lateness_ms: int) -> int:
    """How much older than a record before it one on time may be.

    That is: at most `lateness_ms` behind the clock, after one ahead of it.
    """
    return lateness_ms + AHEAD_MS_MAX


def late_spans(arrivals: Iterable[Arrival], on_time_from_ms: int) -> list[LateSpan]:
    """The late ones of the arrivals, those with a time before `on_time_from_ms`, by partition."""
    late: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        if arrival.time_ms < on_time_from_ms:
            late.setdefault(arrival.partition, []).append(arrival)
    return [_span(partition, late[partition]) for partition in sorted(late)]


def unseen_spans(ends: Mapping[int, int], on_time_from_ms: int) -> list[LateSpan]:
    """All that lies below `ends`, by partition, as if it were late: nobody saw how it came."""
    window = Window(0, on_time_from_ms)
    return [LateSpan(partition, window, ends[partition]) for partition in sorted(ends)]


def _span(partition: int, arrivals: list[Arrival]) -> LateSpan:
    times_ms = [arrival.time_ms for arrival in arrivals]
    window = Window(min(times_ms), max(times_ms) + 1)
    return LateSpan(partition, window, max(arrival.offset for arrival in arrivals) + 1)
