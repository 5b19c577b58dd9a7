"""How fast a replay was over time, as a plot: what is drawn, and the same in words. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from app.console.formats import count, moment
from app.domain.samples import Sample

WIDTH: Final = 600
HEIGHT: Final = 100
"""The units of the drawing, which is stretched to the room that there is."""

STEPS_MAX: Final = 200
"""A step is three units wide then, and the drawing has a few kilobytes."""

ROWS_MAX: Final = 30
"""Of the plot as a table; more of them nobody would listen to."""

_UNITS_S: Final = (("second", 1), ("minute", 60), ("hour", 3_600))

_ROUND: Final = (1, 2, 4, 6, 8, 10)
"""Where an axis may end, but for the power of ten: the half of it is as round."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The events `[from_ms, to_ms)` that came below the checkpoint between two samples."""

    from_ms: int
    to_ms: int
    events: int

    @property
    def events_s(self) -> float:
        """Events in a second."""
        return self.events * 1_000 / (self.to_ms - self.from_ms)


class Row(NamedTuple):
    """A line of the plot as a table: `pace` is in the unit of the plot."""

    from_ms: int
    to_ms: int
    events: int
    pace: str


@dataclass(frozen=True, slots=True)
class PacePlot:
    """A step for each stretch of a replay, from its first sample to its last.

    `line` and `area` are path data in a box of `WIDTH` to `HEIGHT`. `levels` are the labels of the
    vertical axis from its top to zero, in events in a `unit`; `times` those of the horizontal one
    from left to right. `words` say what the drawing shows, and `rows` are it in numbers.
    """

    line: str
    area: str
    levels: tuple[str, ...]
    unit: str
    times: tuple[str, ...]
    words: str
    rows: tuple[Row, ...]


def pace_plot(samples: Sequence[Sample]) -> PacePlot | None:
    """The plot of these samples, the oldest first; None of fewer than two, which tell no pace."""
    if len(samples) < 2:
        return None
    stretches = stretches_between(samples)
    steps = merged(stretches, STEPS_MAX)
    highest = max(step.events_s for step in steps)
    unit, unit_s = _unit(highest)
    top = axis_end(highest * unit_s)
    line = _line(steps, top / unit_s)
    return PacePlot(
        line=line,
        area=f"{line}V{HEIGHT}H0Z",
        levels=tuple(_number(top * share) for share in (1, 0.5, 0)),
        unit=unit,
        times=_times(steps[0].from_ms, steps[-1].to_ms),
        words=_words(steps, unit, unit_s),
        rows=tuple(
            Row(each.from_ms, each.to_ms, each.events, _number(each.events_s * unit_s))
            for each in merged(stretches, ROWS_MAX)
        ),
    )


def stretches_between(samples: Sequence[Sample]) -> tuple[Stretch, ...]:
    """What was done from each sample to the next."""
    return tuple(
        # A database whose clock was set back puts a later sample before an earlier one.
        Stretch(one.at_ms, next_one.at_ms, max(0, _events(next_one) - _events(one)))
        for one, next_one in pairwise(samples)
    )


def merged(stretches: Sequence[Stretch], at_most: int) -> tuple[Stretch, ...]:
    """The same in at most so many stretches: neighbours are taken together."""
    size = math.ceil(len(stretches) / at_most)
    groups = (stretches[start : start + size] for start in range(0, len(stretches), size))
    return tuple(
        Stretch(group[0].from_ms, group[-1].to_ms, sum(each.events for each in group))
        for group in groups
    )


def _events(sample: Sample) -> int:
    counts = sample.counts
    return counts.delivered + counts.duplicates + counts.failed


def _unit(highest_events_s: float) -> tuple[str, int]:
    """The shortest time in which there is an event at all, and its seconds."""
    for name, seconds in _UNITS_S:
        if highest_events_s * seconds >= 1:
            return name, seconds
    return _UNITS_S[0] if highest_events_s == 0 else _UNITS_S[-1]


def axis_end(highest: float) -> float:
    """The next round number, for an axis to end at that begins at zero."""
    if highest == 0:
        return 1
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in _ROUND if highest <= step * power)


def _number(events: float) -> str:
    return count(round(events)) if events >= 10 else f"{events:.3g}"


def _line(steps: Sequence[Stretch], axis_end_s: float) -> str:
    start_ms, length_ms = steps[0].from_ms, steps[-1].to_ms - steps[0].from_ms
    parts = []
    for step in steps:
        x = WIDTH * (step.to_ms - start_ms) / length_ms
        y = HEIGHT * (1 - step.events_s / axis_end_s)
        parts.append(f"V{y:.1f}H{x:.1f}")
    # The first step begins at its own height, not with a rise from zero.
    return "M0 " + parts[0].removeprefix("V") + "".join(parts[1:])


def _times(from_ms: int, to_ms: int) -> tuple[str, ...]:
    moments = [moment(at_ms) for at_ms in (from_ms, (from_ms + to_ms) // 2, to_ms)]
    is_one_day = moments[0][:10] == moments[-1][:10]
    # Of the form 2026-11-22 08:04:32.
    return tuple(text[11:] if is_one_day else text[5:16] for text in moments)


def _words(steps: Sequence[Stretch], unit: str, unit_s: int) -> str:
    start_ms, end_ms = steps[0].from_ms, steps[-1].to_ms
    whole = Stretch(start_ms, end_ms, sum(step.events for step in steps))
    paces = [step.events_s for step in steps]
    mean, lowest, highest, last = (
        _number(events_s * unit_s)
        for events_s in (whole.events_s, min(paces), max(paces), paces[-1])
    )
    return (
        f"{count(whole.events)} events from {moment(start_ms)} to {moment(end_ms)}: {mean} per "
        f"{unit} in the mean, between {lowest} and {highest}, {last} at last."
    )
