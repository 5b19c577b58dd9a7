"""Late events, which reach the log long after their event time, and where they lie in it.

A replay finds the end of its window by time: it ends before the first record that is so much
younger than the window that no event on time can follow. Records on time may be out of order by the
allowed lateness plus the allowed lead of clocks. The positions of later events are stored, and
replays of their event time read up to there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.model import Window
from app.domain.windows import MINUTE_MS

AHEAD_MS_MAX: Final = 5 * MINUTE_MS
"""How far an event time may lie in the future, to allow for clock differences."""


class Arrival(NamedTuple):
    """An event time and the position of the event's record."""

    time_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LateSpan:
    """Late events of one partition, with event times in `window` and offsets below `end`."""

    partition: int
    window: Window
    end: int


def disorder_ms(lateness_ms: int) -> int:
    """How much older than a preceding record a record on time may be.

    It is at most `lateness_ms` behind the clock, and the other at most `AHEAD_MS_MAX` ahead.
    """
    return lateness_ms + AHEAD_MS_MAX


def late_spans(arrivals: Iterable[Arrival], on_time_from_ms: int) -> list[LateSpan]:
    """The arrivals with event times before `on_time_from_ms`, as one span per partition."""
    late: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        if arrival.time_ms < on_time_from_ms:
            late.setdefault(arrival.partition, []).append(arrival)
    return [_span(partition, late[partition]) for partition in sorted(late)]


def unseen_spans(ends: Mapping[int, int], on_time_from_ms: int) -> list[LateSpan]:
    """Spans of all records below `ends`, by partition: their arrival was not observed."""
    window = Window(0, on_time_from_ms)
    return [LateSpan(partition, window, ends[partition]) for partition in sorted(ends)]


def _span(partition: int, arrivals: list[Arrival]) -> LateSpan:
    times_ms = [arrival.time_ms for arrival in arrivals]
    window = Window(min(times_ms), max(times_ms) + 1)
    return LateSpan(partition, window, max(arrival.offset for arrival in arrivals) + 1)
