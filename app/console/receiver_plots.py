"""How a receiver fared over time, as bars: what is drawn, and the same in words. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.console.formats import count, moment
from app.console.plots import HEIGHT, WIDTH, axis_end
from app.domain.hours import HOUR_MS
from app.domain.missed import MissedHour
from app.domain.tallies import DeliveryTally, Span
from app.domain.windows import DAY_MS

_LOWEST_TOP: Final = 2
"""Of an axis: half of it is a whole number then."""

_GAP: Final = 0.2
"""Of the room of a bar, left between it and the next."""

_SEEN_FROM: Final = 3
"""So high is what is there at all: one event that was missed among thousands is to be seen."""


class Stack(NamedTuple):
    """What stands over one stretch of time: a good part, and a bad one on top of it."""

    start_ms: int
    good: int
    bad: int
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A stack in a box of `WIDTH` to `HEIGHT`, whose y grows downwards from its top."""

    x: float
    width: float
    good_y: float
    good_height: float
    bad_y: float
    bad_height: float
    words: str


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Bars side by side, with the labels of the axes, top to zero and left to right."""

    bars: tuple[Bar, ...]
    levels: tuple[str, ...]
    times: tuple[str, ...]
    words: str


def settled_plot(tallies: Iterable[DeliveryTally], from_ms: int, to_ms: int) -> BarPlot:
    """What was settled in each five minutes of `[from_ms, to_ms)`: delivered, and missed on top."""
    width_ms = Span.SETTLED.width_ms
    by_start = {tally.start_ms: tally for tally in tallies}
    found = [
        by_start.get(start_ms, DeliveryTally(start_ms))
        for start_ms in range(from_ms, to_ms, width_ms)
    ]
    stacks = [
        Stack(
            each.start_ms,
            each.delivered,
            each.missed,
            f"{_clock(each.start_ms)}: {count(each.delivered)} delivered, "
            f"{count(each.missed)} missed",
        )
        for each in found
    ]
    delivered, missed = sum(each.delivered for each in found), sum(each.missed for each in found)
    words = (
        f"{count(delivered)} events delivered and {count(missed)} missed, by five minutes from "
        f"{_clock(from_ms)} to {_clock(to_ms)}."
    )
    return _plot(stacks, width_ms, words)


def missed_plot(hours: Iterable[MissedHour], from_ms: int, to_ms: int) -> BarPlot:
    """What was missed in each hour of `[from_ms, to_ms)`: a bar is of one kind.

    It is good where all was replayed since.
    """
    by_start = {hour.start_ms: hour for hour in hours}
    first_ms = from_ms // HOUR_MS * HOUR_MS
    stacks = [
        _stack(start_ms, by_start.get(start_ms)) for start_ms in range(first_ms, to_ms, HOUR_MS)
    ]
    replayed, left = sum(each.good for each in stacks), sum(each.bad for each in stacks)
    words = (
        f"{count(replayed + left)} events missed, by hour from {moment(first_ms)[:16]} to "
        f"{moment(to_ms)[:16]}: {count(replayed)} in hours that were replayed since, {count(left)} "
        "in hours that were not."
    )
    return _plot(stacks, HOUR_MS, words)


def _stack(start_ms: int, hour: MissedHour | None) -> Stack:
    if hour is None:
        return Stack(start_ms, 0, 0, "")
    said = "replayed since" if hour.is_replayed else "not replayed"
    words = f"{moment(start_ms)[:16]}: {count(hour.missed)} missed, {said}"
    missed = hour.missed
    return Stack(start_ms, missed * hour.is_replayed, missed * (not hour.is_replayed), words)


def _plot(stacks: Sequence[Stack], width_ms: int, words: str) -> BarPlot:
    top = axis_end(max(_LOWEST_TOP, *(each.good + each.bad for each in stacks)))
    room = WIDTH / len(stacks)
    bars = tuple(
        _bar(stack, place * room, room * (1 - _GAP), HEIGHT / top)
        for place, stack in enumerate(stacks)
        if stack.good or stack.bad
    )
    start_ms, end_ms = stacks[0].start_ms, stacks[-1].start_ms + width_ms
    label = _clock if end_ms - start_ms < DAY_MS else _date
    times = tuple(label(at_ms) for at_ms in (start_ms, (start_ms + end_ms) // 2, end_ms))
    levels = tuple(count(round(top * share)) for share in (1, 0.5, 0))
    return BarPlot(bars, levels, times, words)


def _bar(stack: Stack, x: float, width: float, unit: float) -> Bar:
    bad_height = max(stack.bad * unit, _SEEN_FROM) if stack.bad else 0
    room = HEIGHT - bad_height
    good_height = min(max(stack.good * unit, _SEEN_FROM), room) if stack.good else 0
    good_y = HEIGHT - good_height
    return Bar(x, width, good_y, good_height, good_y - bad_height, bad_height, stack.words)


def _clock(at_ms: int) -> str:
    return moment(at_ms)[11:16]


def _date(at_ms: int) -> str:
    return moment(at_ms)[5:16]
