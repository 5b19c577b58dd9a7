"""Plots of the log over time: messages written per time, sizes, and lags. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from app.console.delivery_plots import RangeTab
from app.console.formats import count, moment, size
from app.console.plots import (
    AXIS_END_MIN,
    HEIGHT,
    ROWS_MAX,
    STEPS_MAX,
    WIDTH,
    PlotTimes,
    axis_end,
    format_rate,
    plot_times,
    rate_unit,
)
from app.console.time_ranges import TimeRange
from app.domain.log_samples import (
    LogSample,
    SampleInterval,
    SampleSpan,
    level_intervals,
    written_intervals,
)


class StepRow(NamedTuple):
    """A row of a plot's table."""

    from_ms: int
    to_ms: int
    value: str


@dataclass(frozen=True, slots=True)
class StepPlot:
    """Steps over a time range, with gaps where nothing is known.

    `line` and `area` are path data in a box of `WIDTH` by `HEIGHT`. `levels` label the vertical
    axis from top to zero, `times` the horizontal one. `words` is the text alternative.
    """

    title: str
    unit: str
    line: str
    area: str
    levels: tuple[str, ...]
    times: PlotTimes
    words: str
    rows: tuple[StepRow, ...]


@dataclass(frozen=True, slots=True)
class LogPlots:
    """The plots of a page in the range `shown`; those without samples are left out."""

    shown: TimeRange
    tabs: tuple[RangeTab, ...]
    plots: tuple[StepPlot, ...]


class _Step(NamedTuple):
    from_ms: int
    to_ms: int
    height: float


_Combine = Callable[[Sequence[SampleInterval]], float]


def written_plot(
    samples: Iterable[LogSample], span: SampleSpan, shown: TimeRange, of: str
) -> StepPlot | None:
    """Return the messages written per unit of time; `of` names the topics."""
    intervals = written_intervals(samples, span, shown.to_ms)
    steps = _steps(intervals, shown, STEPS_MAX, _per_second)
    if not steps:
        return None
    unit, unit_s = rate_unit(max(each.height for each in steps))
    rows = _steps(intervals, shown, ROWS_MAX, _per_second)
    return _step_plot(
        f"Messages written to {of}",
        f"messages per {unit}",
        [each._replace(height=each.height * unit_s) for each in steps],
        [each._replace(height=each.height * unit_s) for each in rows],
        shown,
        format_rate,
    )


def size_plot(
    samples: Iterable[LogSample], span: SampleSpan, shown: TimeRange, of: str
) -> StepPlot | None:
    """Return the size of topics over time."""
    known = [(each.start_ms, each.bytes) for each in samples if each.bytes is not None]
    return _level_plot(f"Size of {of}", "bytes on disk", known, span, shown, size)


def lag_plot(
    samples: Iterable[LogSample], span: SampleSpan, shown: TimeRange, of: str
) -> StepPlot | None:
    """Return the highest lag of groups over time."""
    lags = [(each.start_ms, each.value) for each in samples]
    return _level_plot(f"Lag of {of}", "messages", lags, span, shown, _format_count)


def _level_plot(
    title: str,
    unit: str,
    levels: Sequence[tuple[int, int]],
    span: SampleSpan,
    shown: TimeRange,
    form: Callable[[float], str],
) -> StepPlot | None:
    intervals = level_intervals(levels, span)
    steps = _steps(intervals, shown, STEPS_MAX, _highest)
    rows = _steps(intervals, shown, ROWS_MAX, _highest)
    return _step_plot(title, unit, steps, rows, shown, form) if steps else None


def _per_second(intervals: Sequence[SampleInterval]) -> float:
    duration_ms = intervals[-1].to_ms - intervals[0].from_ms
    return sum(each.value for each in intervals) * 1_000 / duration_ms


def _highest(intervals: Sequence[SampleInterval]) -> float:
    return max(each.value for each in intervals)


def _format_count(number: float) -> str:
    return count(round(number))


def _steps(
    intervals: Iterable[SampleInterval], shown: TimeRange, steps_max: int, combine: _Combine
) -> list[_Step]:
    """Return the steps of a range. Neighbours are merged, up to a fixed part of the range."""
    part_ms = math.ceil((shown.to_ms - shown.from_ms) / steps_max)
    steps = []
    for _, group in groupby(intervals, lambda each: (each.from_ms - shown.from_ms) // part_ms):
        for run in _runs(group):
            from_ms, to_ms = max(run[0].from_ms, shown.from_ms), min(run[-1].to_ms, shown.to_ms)
            if from_ms < to_ms:
                steps.append(_Step(from_ms, to_ms, combine(run)))
    return steps


def _runs(intervals: Iterable[SampleInterval]) -> list[list[SampleInterval]]:
    """Return the intervals in runs without gaps."""
    runs: list[list[SampleInterval]] = []
    for each in intervals:
        if runs and runs[-1][-1].to_ms == each.from_ms:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _step_plot(
    title: str,
    unit: str,
    steps: Sequence[_Step],
    rows: Sequence[_Step],
    shown: TimeRange,
    form: Callable[[float], str],
) -> StepPlot:
    highest = max(each.height for each in steps)
    top = axis_end(max(AXIS_END_MIN, highest))
    line, area = _paths(steps, shown, top)
    return StepPlot(
        title=title,
        unit=unit,
        line=line,
        area=area,
        levels=tuple(form(top * share) for share in (1, 0.5, 0)),
        times=plot_times(shown.from_ms, shown.to_ms),
        words=(
            f"{title}, in {unit}, from {moment(shown.from_ms)} to {moment(shown.to_ms)} UTC: "
            f"highest {form(highest)}, last {form(steps[-1].height)}."
        ),
        rows=tuple(StepRow(each.from_ms, each.to_ms, form(each.height)) for each in rows),
    )


def _paths(steps: Sequence[_Step], shown: TimeRange, top: float) -> tuple[str, str]:
    """Return path data of the line, and of the area below it."""
    line, area = [], []
    scale = WIDTH / (shown.to_ms - shown.from_ms)
    ends = [(later.from_ms == each.to_ms) for each, later in pairwise(steps)] + [False]
    start_x = None
    for each, is_continued in zip(steps, ends, strict=True):
        x, end_x = ((at_ms - shown.from_ms) * scale for at_ms in (each.from_ms, each.to_ms))
        y = HEIGHT * (1 - each.height / top)
        part = f"V{y:.1f}H{end_x:.1f}"
        if start_x is None:
            start_x = x
            line.append(f"M{x:.1f} {y:.1f}H{end_x:.1f}")
            area.append(f"M{x:.1f} {HEIGHT}{part}")
        else:
            line.append(part)
            area.append(part)
        if not is_continued:
            area.append(f"V{HEIGHT}H{start_x:.1f}Z")
            start_x = None
    return "".join(line), "".join(area)
