"""The table of results: figures, their baselines and their targets."""

import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

COLUMNS: Final = ("", "figure", "unit", "ratio", "baseline", "target", "met")
WIDTHS: Final = (45, 11, 10, 7, 27, 12, 3)
RIGHT: Final = ("figure", "ratio", "target")


class Baseline(NamedTuple):
    """The divisor of a figure: measured in the same run, in the same unit."""

    name: str
    figure: float


class Target(NamedTuple):
    """A bound on the figure, or on its ratio to the baseline."""

    bound: float
    is_least: bool = True
    is_of_ratio: bool = False

    def is_met(self, figure: float, ratio: float | None) -> bool:
        """Return whether the figure, or its ratio, is within the bound."""
        value = ratio if self.is_of_ratio else figure
        assert value is not None, "a target on a ratio needs a baseline"
        return value >= self.bound if self.is_least else value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.is_least else "<="
        return f"{sign} {self.bound:.0%}" if self.is_of_ratio else f"{sign} {_number(self.bound)}"


def at_least(bound: float) -> Target:
    """Return the target that the figure is at least `bound`."""
    return Target(bound)


def at_most(bound: float) -> Target:
    """Return the target that the figure is at most `bound`."""
    return Target(bound, is_least=False)


def share_at_least(bound: float) -> Target:
    """Return the target that the ratio is at least `bound`."""
    return Target(bound, is_of_ratio=True)


def share_at_most(bound: float) -> Target:
    """Return the target that the ratio is at most `bound`."""
    return Target(bound, is_least=False, is_of_ratio=True)


class Line(NamedTuple):
    """One figure; a line without a baseline is a baseline itself, or a plain figure."""

    name: str
    figure: float
    unit: str
    baseline: Baseline | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """The figure divided by its baseline."""
        return None if self.baseline is None else self.figure / self.baseline.figure

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else self.target.is_met(self.figure, self.ratio)

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        ratio = "" if self.ratio is None else f"{self.ratio:.1%}"
        met = {None: "", True: "yes", False: "NO"}[self.is_met]
        return (
            self.name,
            _number(self.figure),
            self.unit,
            ratio,
            "" if self.baseline is None else self.baseline.name,
            "" if self.target is None else str(self.target),
            met,
        )


class Group(NamedTuple):
    """The lines of one group under its title."""

    title: str
    lines: list[Line]


def print_group(group: Group) -> None:
    """Write a group to standard output as a part of the table."""
    print(f"\n{group.title}")
    for line in group.lines:
        print(_row(line.cells()))
    sys.stdout.flush()


def print_head() -> None:
    """Write the table's header to standard output."""
    print(_row(COLUMNS))


def verdict(groups: Iterable[Group]) -> str:
    """Return how many targets are met, and the names of those that are not."""
    targeted = [line for group in groups for line in group.lines if line.is_met is not None]
    missed = [line.name for line in targeted if not line.is_met]
    summary = f"{len(targeted) - len(missed)} of {len(targeted)} targets met"
    return summary if not missed else f"{summary}; missed: {'; '.join(missed)}"


def _row(cells: Iterable[str]) -> str:
    padded = (
        cell.rjust(width) if name in RIGHT else cell.ljust(width)
        for name, width, cell in zip(COLUMNS, WIDTHS, cells, strict=True)
    )
    return "  ".join(padded).rstrip()


def _number(value: float) -> str:
    """Return the value with three significant digits, without an exponent."""
    if value >= 100:
        digits = 3 - len(str(int(value)))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"
