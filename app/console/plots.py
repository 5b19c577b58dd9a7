"""Plots as SVG coordinates, with a text alternative: the rate of a replay, and bars of deliveries.

Pure.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from app.console.formats import count, moment
from app.domain.hours import HOUR_MS
from app.domain.missed import MissedHour
from app.domain.samples import Sample
from app.domain.tallies import DeliveryTally, Span
from app.domain.windows import DAY_MS

WIDTH: Final = 600
HEIGHT: Final = 100
"""The size of the SVG's view box, which CSS stretches."""

STEPS_MAX: Final = 200
"""Steps of a rate plot: each is three units wide, and the SVG has a few kilobytes."""

ROWS_MAX: Final = 30
"""Rows of a plot's table, which screen readers read aloud."""

_UNITS_S: Final = (("second", 1), ("minute", 60), ("hour", 3_600))

_AXIS_ENDS: Final = (1, 2, 4, 6, 8, 10)
"""Upper ends of an axis, up to a power of ten: their halves are round as well."""

_AXIS_END_MIN: Final = 2
"""The lowest upper end of an axis of counts: its half is a whole number."""

_GAP: Final = 0.2
"""The share of a bar's width that separates it from the next."""

_HEIGHT_MIN: Final = 3
"""The lowest height of a bar: one missed event among thousands must be visible."""


@dataclass(frozen=True, slots=True)
class RateInterval:
    """The events processed in `[from_ms, to_ms)`, the time between two samples."""

    from_ms: int
    to_ms: int
    events: int

    @property
    def events_s(self) -> float:
        """Events per second."""
        return self.events * 1_000 / (self.to_ms - self.from_ms)


class RateRow(NamedTuple):
    """A row of a rate plot's table. `rate` is in the unit of the plot."""

    from_ms: int
    to_ms: int
    events: int
    rate: str


@dataclass(frozen=True, slots=True)
class RatePlot:
    """A step line of a replay's rate, from its first sample to its last.

    `line` and `area` are path data in a box of `WIDTH` by `HEIGHT`. `levels` label the vertical
    axis from top to zero, in events per `unit`; `times` the horizontal one from left to right.
    `words` is the text alternative, `rows` the table.
    """

    line: str
    area: str
    levels: tuple[str, ...]
    unit: str
    times: tuple[str, ...]
    words: str
    rows: tuple[RateRow, ...]


class BarStack(NamedTuple):
    """The values of one bar: a good part with a bad part on top."""

    start_ms: int
    good: int
    bad: int
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a box of `WIDTH` by `HEIGHT`. Y grows downwards."""

    x: float
    width: float
    good_y: float
    good_height: float
    bad_y: float
    bad_height: float
    words: str


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Bars with the labels of the axes: `levels` from top to zero, `times` from left to right."""

    bars: tuple[Bar, ...]
    levels: tuple[str, ...]
    times: tuple[str, ...]
    words: str


def rate_plot(samples: Sequence[Sample]) -> RatePlot | None:
    """Return the plot of samples, oldest first. None for fewer than two, which have no rate."""
    if len(samples) < 2:
        return None
    intervals = rate_intervals(samples)
    steps = merge_intervals(intervals, STEPS_MAX)
    highest = max(step.events_s for step in steps)
    unit, unit_s = _rate_unit(highest)
    top = axis_end(highest * unit_s)
    line = _step_line(steps, top / unit_s)
    return RatePlot(
        line=line,
        area=f"{line}V{HEIGHT}H0Z",
        levels=tuple(_format_rate(top * share) for share in (1, 0.5, 0)),
        unit=unit,
        times=_rate_times(steps[0].from_ms, steps[-1].to_ms),
        words=_rate_words(steps, unit, unit_s),
        rows=tuple(
            RateRow(each.from_ms, each.to_ms, each.events, _format_rate(each.events_s * unit_s))
            for each in merge_intervals(intervals, ROWS_MAX)
        ),
    )


def rate_intervals(samples: Sequence[Sample]) -> tuple[RateInterval, ...]:
    """Return the intervals between consecutive samples."""
    return tuple(
        # After the database's clock was set back, a later sample may sort before an earlier one.
        RateInterval(one.at_ms, next_one.at_ms, max(0, _events(next_one) - _events(one)))
        for one, next_one in pairwise(samples)
    )


def merge_intervals(intervals: Sequence[RateInterval], at_most: int) -> tuple[RateInterval, ...]:
    """Merge neighbours until at most this many intervals are left."""
    size = math.ceil(len(intervals) / at_most)
    groups = (intervals[start : start + size] for start in range(0, len(intervals), size))
    return tuple(
        RateInterval(group[0].from_ms, group[-1].to_ms, sum(each.events for each in group))
        for group in groups
    )


def _events(sample: Sample) -> int:
    counts = sample.counts
    return counts.delivered + counts.duplicates + counts.failed


def _rate_unit(highest_events_s: float) -> tuple[str, int]:
    """Return the shortest unit of time with at least one event, and its seconds."""
    for name, seconds in _UNITS_S:
        if highest_events_s * seconds >= 1:
            return name, seconds
    return _UNITS_S[0] if highest_events_s == 0 else _UNITS_S[-1]


def axis_end(highest: float) -> float:
    """Return the upper end of an axis from zero: the next round number."""
    if highest == 0:
        return 1
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in _AXIS_ENDS if highest <= step * power)


def _format_rate(events: float) -> str:
    return count(round(events)) if events >= 10 else f"{events:.3g}"


def _step_line(steps: Sequence[RateInterval], axis_end_s: float) -> str:
    start_ms, length_ms = steps[0].from_ms, steps[-1].to_ms - steps[0].from_ms
    parts = []
    for step in steps:
        x = WIDTH * (step.to_ms - start_ms) / length_ms
        y = HEIGHT * (1 - step.events_s / axis_end_s)
        parts.append(f"V{y:.1f}H{x:.1f}")
    # The line starts at the height of the first step, without a vertical edge.
    return "M0 " + parts[0].removeprefix("V") + "".join(parts[1:])


def _rate_times(from_ms: int, to_ms: int) -> tuple[str, ...]:
    moments = [moment(at_ms) for at_ms in (from_ms, (from_ms + to_ms) // 2, to_ms)]
    is_one_day = moments[0][:10] == moments[-1][:10]
    # Of the form 2026-11-22 08:04:32.
    return tuple(text[11:] if is_one_day else text[5:16] for text in moments)


def _rate_words(steps: Sequence[RateInterval], unit: str, unit_s: int) -> str:
    start_ms, end_ms = steps[0].from_ms, steps[-1].to_ms
    whole = RateInterval(start_ms, end_ms, sum(step.events for step in steps))
    rates = [step.events_s for step in steps]
    mean, lowest, highest, last = (
        _format_rate(events_s * unit_s)
        for events_s in (whole.events_s, min(rates), max(rates), rates[-1])
    )
    return (
        f"{count(whole.events)} events from {moment(start_ms)} to {moment(end_ms)}. Events per "
        f"{unit}: mean {mean}, min {lowest}, max {highest}, last {last}."
    )


def deliveries_plot(tallies: Iterable[DeliveryTally], from_ms: int, to_ms: int) -> BarPlot:
    """Return live deliveries per five minutes of `[from_ms, to_ms)`: delivered, missed on top."""
    width_ms = Span.SETTLED.width_ms
    by_start = {tally.start_ms: tally for tally in tallies}
    found = [
        by_start.get(start_ms, DeliveryTally(start_ms))
        for start_ms in range(from_ms, to_ms, width_ms)
    ]
    stacks = [
        BarStack(
            each.start_ms,
            each.delivered,
            each.missed,
            f"{_time_label(each.start_ms)}: {count(each.delivered)} delivered, "
            f"{count(each.missed)} missed",
        )
        for each in found
    ]
    delivered, missed = sum(each.delivered for each in found), sum(each.missed for each in found)
    words = (
        f"{count(delivered)} events delivered and {count(missed)} missed, per five minutes from "
        f"{_time_label(from_ms)} to {_time_label(to_ms)}."
    )
    return _bar_plot(stacks, width_ms, words)


def missed_plot(hours: Iterable[MissedHour], from_ms: int, to_ms: int) -> BarPlot:
    """Return missed events per hour of `[from_ms, to_ms)`: good if replayed since, else bad."""
    by_start = {hour.start_ms: hour for hour in hours}
    first_ms = from_ms // HOUR_MS * HOUR_MS
    stacks = [
        _missed_stack(start_ms, by_start.get(start_ms))
        for start_ms in range(first_ms, to_ms, HOUR_MS)
    ]
    replayed, missed = sum(each.good for each in stacks), sum(each.bad for each in stacks)
    words = (
        f"{count(replayed + missed)} events missed, per hour from {moment(first_ms)[:16]} to "
        f"{moment(to_ms)[:16]}: {count(replayed)} in hours that were replayed since, "
        f"{count(missed)} in hours that were not."
    )
    return _bar_plot(stacks, HOUR_MS, words)


def _missed_stack(start_ms: int, hour: MissedHour | None) -> BarStack:
    if hour is None:
        return BarStack(start_ms, 0, 0, "")
    status = "replayed since" if hour.is_replayed else "not replayed"
    words = f"{moment(start_ms)[:16]}: {count(hour.missed)} missed, {status}"
    missed = hour.missed
    return BarStack(start_ms, missed * hour.is_replayed, missed * (not hour.is_replayed), words)


def _bar_plot(stacks: Sequence[BarStack], width_ms: int, words: str) -> BarPlot:
    top = axis_end(max(_AXIS_END_MIN, *(each.good + each.bad for each in stacks)))
    width = WIDTH / len(stacks)
    bars = tuple(
        _bar(stack, index * width, width * (1 - _GAP), HEIGHT / top)
        for index, stack in enumerate(stacks)
        if stack.good or stack.bad
    )
    start_ms, end_ms = stacks[0].start_ms, stacks[-1].start_ms + width_ms
    label = _time_label if end_ms - start_ms < DAY_MS else _date_label
    times = tuple(label(at_ms) for at_ms in (start_ms, (start_ms + end_ms) // 2, end_ms))
    levels = tuple(count(round(top * share)) for share in (1, 0.5, 0))
    return BarPlot(bars, levels, times, words)


def _bar(stack: BarStack, x: float, width: float, unit: float) -> Bar:
    bad_height = max(stack.bad * unit, _HEIGHT_MIN) if stack.bad else 0
    available = HEIGHT - bad_height
    good_height = min(max(stack.good * unit, _HEIGHT_MIN), available) if stack.good else 0
    good_y = HEIGHT - good_height
    return Bar(x, width, good_y, good_height, good_y - bad_height, bad_height, stack.words)


def _time_label(at_ms: int) -> str:
    return moment(at_ms)[11:16]


def _date_label(at_ms: int) -> str:
    return moment(at_ms)[5:16]
