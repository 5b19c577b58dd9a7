"""Plots as SVG coordinates, with a text alternative: rates of replays, deliveries, and latencies.

Pure.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from app.console.formats import (
    DAY_AND_MINUTE,
    MINUTE_OF_DAY,
    SECOND_OF_DAY,
    TimePart,
    at_most,
    count,
    moment,
)
from app.domain.hours import HOUR_MS
from app.domain.missed import MissedHour
from app.domain.samples import Sample
from app.domain.tallies import TOOK_CLASSES, TOOK_MS_BOUNDS, DeliveryTally, summed
from app.domain.windows import DAY_MS, MINUTE_MS

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

AXIS_END_MIN: Final = 2
"""The lowest upper end of an axis of counts: its half is a whole number."""

_GAP: Final = 0.2
"""The share of a bar's width that separates it from the next."""

_HEIGHT_MIN: Final = 3
"""The lowest height of a bar: one missed event among thousands must be visible."""


LATENCY_LEVELS: Final = ("> 5 s", "2.5 s", "500 ms", "100 ms", "0")
"""The labels of every second latency bucket, from top to zero."""


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


class PlotTimes(NamedTuple):
    """Start, middle and end of a horizontal axis, labelled with the same part of each time."""

    at_ms: tuple[int, ...]
    part: TimePart

    @classmethod
    def of(cls, start_ms: int, end_ms: int, part: TimePart) -> "PlotTimes":
        """Return the labels of a period."""
        return cls((start_ms, (start_ms + end_ms) // 2, end_ms), part)

    @property
    def texts(self) -> tuple[str, ...]:
        """The labels, in UTC."""
        return tuple(map(self.part.text, self.at_ms))


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
    times: PlotTimes
    words: str
    rows: tuple[RateRow, ...]


class BarStack(NamedTuple):
    """The values of one bar: a good part with a bad part on top. `words` begin with its time."""

    start_ms: int
    good: int
    bad: int
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a box of `WIDTH` by `HEIGHT`. Y grows downwards."""

    start_ms: int
    x: float
    width: float
    good_y: float
    good_height: float
    bad_y: float
    bad_height: float
    words: str


class LatencyInterval(NamedTuple):
    """The place of an interval in a plot, with its time and percentiles in words."""

    start_ms: int
    x: float
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class LatencyPlot:
    """Step lines of two latency percentiles over time.

    They are path data in a box of `WIDTH` by `HEIGHT`. Each latency bucket has the same height.
    """

    p50: str
    p95: str
    intervals: tuple[LatencyInterval, ...]
    levels: tuple[str, ...]
    times: PlotTimes
    words: str


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Bars with the labels of the axes: `levels` from top to zero, `times` from left to right."""

    bars: tuple[Bar, ...]
    levels: tuple[str, ...]
    times: PlotTimes
    words: str


def rate_plot(samples: Sequence[Sample]) -> RatePlot | None:
    """Return the plot of samples, oldest first. None for fewer than two, which have no rate."""
    if len(samples) < 2:
        return None
    intervals = rate_intervals(samples)
    steps = merge_intervals(intervals, STEPS_MAX)
    highest = max(step.events_s for step in steps)
    unit, unit_s = rate_unit(highest)
    top = axis_end(highest * unit_s)
    line = _step_line(steps, top / unit_s)
    return RatePlot(
        line=line,
        area=f"{line}V{HEIGHT}H0Z",
        levels=tuple(format_rate(top * share) for share in (1, 0.5, 0)),
        unit=unit,
        times=_rate_times(steps[0].from_ms, steps[-1].to_ms),
        words=_rate_words(steps, unit, unit_s),
        rows=tuple(
            RateRow(each.from_ms, each.to_ms, each.events, format_rate(each.events_s * unit_s))
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


def rate_unit(highest_events_s: float) -> tuple[str, int]:
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


def format_rate(events: float) -> str:
    """Format a number of events per unit of time, with three digits if it is small."""
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


def _rate_times(from_ms: int, to_ms: int) -> PlotTimes:
    is_one_day = from_ms // DAY_MS == to_ms // DAY_MS
    return PlotTimes.of(from_ms, to_ms, SECOND_OF_DAY if is_one_day else DAY_AND_MINUTE)


def _rate_words(steps: Sequence[RateInterval], unit: str, unit_s: int) -> str:
    start_ms, end_ms = steps[0].from_ms, steps[-1].to_ms
    whole = RateInterval(start_ms, end_ms, sum(step.events for step in steps))
    rates = [step.events_s for step in steps]
    mean, lowest, highest, last = (
        format_rate(events_s * unit_s)
        for events_s in (whole.events_s, min(rates), max(rates), rates[-1])
    )
    return (
        f"{count(whole.events)} events from {moment(start_ms)} to {moment(end_ms)} UTC. Events per "
        f"{unit}: mean {mean}, min {lowest}, max {highest}, last {last}."
    )


def deliveries_plot(tallies: Sequence[DeliveryTally], width_ms: int) -> BarPlot:
    """Return live deliveries per `width_ms`: delivered, missed on top. One tally is one bar."""
    from_ms, to_ms = tallies[0].start_ms, tallies[-1].start_ms + width_ms
    times = plot_times(from_ms, to_ms)
    label = times.part.text
    stacks = [
        BarStack(
            each.start_ms,
            each.delivered,
            each.missed,
            f"{label(each.start_ms)}: {count(each.delivered)} delivered, "
            f"{count(each.missed)} missed",
        )
        for each in tallies
    ]
    whole = summed(tallies, from_ms)
    words = (
        f"{count(whole.delivered)} events delivered and {count(whole.missed)} missed, per "
        f"{width_words(width_ms)} from {label(from_ms)} to {label(to_ms)} UTC."
    )
    return _bar_plot(stacks, times, words)


def latency_plot(tallies: Sequence[DeliveryTally], width_ms: int) -> LatencyPlot | None:
    """Return the latency percentiles per `width_ms`. None without attempts."""
    from_ms, to_ms = tallies[0].start_ms, tallies[-1].start_ms + width_ms
    whole = summed(tallies, from_ms)
    if not any(whole.took):
        return None
    times, width = plot_times(from_ms, to_ms), WIDTH / len(tallies)
    label = times.part.text
    words = (
        f"Latency of the last attempts, per {width_words(width_ms)} from {label(from_ms)} to "
        f"{label(to_ms)} UTC. In all: p50 {at_most(whole.percentile_ms(0.5))}, p95 "
        f"{at_most(whole.percentile_ms(0.95))}."
    )
    intervals = tuple(
        LatencyInterval(
            each.start_ms,
            index * width,
            width,
            f"{label(each.start_ms)}: p50 {at_most(each.percentile_ms(0.5))}, p95 "
            f"{at_most(each.percentile_ms(0.95))}",
        )
        for index, each in enumerate(tallies)
        if any(each.took)
    )
    return LatencyPlot(
        p50=_percentile_line(tallies, 0.5),
        p95=_percentile_line(tallies, 0.95),
        intervals=intervals,
        levels=LATENCY_LEVELS,
        times=times,
        words=words,
    )


def _percentile_line(tallies: Sequence[DeliveryTally], share: float) -> str:
    """Return path data with a step for each tally, and a gap for each without attempts."""
    width, parts, is_gap = WIDTH / len(tallies), [], True
    for index, each in enumerate(tallies):
        latency_ms = each.percentile_ms(share)
        if latency_ms is not None:
            # All buckets have the same height.
            y = HEIGHT * (1 - (bisect_left(TOOK_MS_BOUNDS, latency_ms) + 1) / TOOK_CLASSES)
            start = f"M{index * width:.1f} {y:.1f}" if is_gap else f"V{y:.1f}"
            parts.append(f"{start}H{(index + 1) * width:.1f}")
        is_gap = latency_ms is None
    return "".join(parts)


def missed_plot(hours: Iterable[MissedHour], from_ms: int, to_ms: int) -> BarPlot:
    """Return missed events per hour of `[from_ms, to_ms)`: good if replayed since, else bad."""
    by_start = {hour.start_ms: hour for hour in hours}
    starts_ms = range(from_ms // HOUR_MS * HOUR_MS, to_ms, HOUR_MS)
    times = plot_times(starts_ms[0], starts_ms[-1] + HOUR_MS)
    stacks = [_missed_stack(each, by_start.get(each), times.part) for each in starts_ms]
    replayed, missed = sum(each.good for each in stacks), sum(each.bad for each in stacks)
    words = (
        f"{count(replayed + missed)} events missed, per hour from {moment(starts_ms[0])[:16]} "
        f"to {moment(to_ms)[:16]} UTC: {count(replayed)} in hours that were replayed since, "
        f"{count(missed)} in hours that were not."
    )
    return _bar_plot(stacks, times, words)


def _missed_stack(start_ms: int, hour: MissedHour | None, part: TimePart) -> BarStack:
    if hour is None:
        return BarStack(start_ms, 0, 0, "")
    status = "replayed since" if hour.is_replayed else "not replayed"
    words = f"{part.text(start_ms)}: {count(hour.missed)} missed, {status}"
    missed = hour.missed
    return BarStack(start_ms, missed * hour.is_replayed, missed * (not hour.is_replayed), words)


def _bar_plot(stacks: Sequence[BarStack], times: PlotTimes, words: str) -> BarPlot:
    top = axis_end(max(AXIS_END_MIN, *(each.good + each.bad for each in stacks)))
    width = WIDTH / len(stacks)
    bars = tuple(
        _bar(stack, index * width, width * (1 - _GAP), HEIGHT / top)
        for index, stack in enumerate(stacks)
        if stack.good or stack.bad
    )
    levels = tuple(count(round(top * share)) for share in (1, 0.5, 0))
    return BarPlot(bars, levels, times, words)


def _bar(stack: BarStack, x: float, width: float, unit: float) -> Bar:
    bad_height = max(stack.bad * unit, _HEIGHT_MIN) if stack.bad else 0
    available = HEIGHT - bad_height
    good_height = min(max(stack.good * unit, _HEIGHT_MIN), available) if stack.good else 0
    good_y = HEIGHT - good_height
    return Bar(
        stack.start_ms, x, width, good_y, good_height, good_y - bad_height, bad_height, stack.words
    )


def width_words(width_ms: int) -> str:
    """Return the length of a bar in words, to be used after "per"."""
    if width_ms < HOUR_MS:
        return f"{width_ms // MINUTE_MS} minutes"
    return "hour" if width_ms == HOUR_MS else f"{width_ms // HOUR_MS} hours"


def plot_times(start_ms: int, end_ms: int) -> PlotTimes:
    """Return the labels of a period, with the date if it has a day or more."""
    part = MINUTE_OF_DAY if end_ms - start_ms < DAY_MS else DAY_AND_MINUTE
    return PlotTimes.of(start_ms, end_ms, part)
