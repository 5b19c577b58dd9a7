"""Plots of a day as PNG files, in a light and a dark version."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from spark_jobs.jobs.delivery_report.figures import OUTCOMES, DayReport, delay_text

_HOURS: Final = range(24)
_INCHES: Final = (8.0, 3.6)
_DPI: Final = 150
"""Sharp at half the page's width on a high-density screen."""


class Theme(NamedTuple):
    """The colours of a page."""

    name: str
    ink: str
    paper: str
    grid: str
    median: str


LIGHT: Final = Theme("light", "#1b1f24", "#ffffff", "#d5dae0", "#0072b2")
DARK: Final = Theme("dark", "#e6e9ed", "#16191d", "#3a4048", "#56b4e9")

# Okabe and Ito's palette for colour blindness; hatches for print.
_COLOURS: Final = dict(
    zip(OUTCOMES, ("#009e73", "#d55e00", "#e69f00", "#999999", "#56b4e9"), strict=True)
)
_HATCHES: Final = dict(zip(OUTCOMES, ("", "xx", "//", "..", "\\\\"), strict=True))
_REPLAYED: Final = "#cc79a7"
_P95: Final = "#d55e00"

_TICKS_MS: Final = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 360_000_000)
"""Ticks of the delay axis, at common durations."""


def plots_of(report: DayReport) -> Mapping[str, bytes]:
    """PNG files by name: `events-light`, `events-dark`, `delays-light`, `delays-dark`."""
    drawn = {}
    for theme in (LIGHT, DARK):
        drawn[f"events-{theme.name}"] = _png(_events(report, theme))
        drawn[f"delays-{theme.name}"] = _png(_delays(report, theme))
    return drawn


def _events(report: DayReport, theme: Theme) -> Figure:
    figure, axes = _empty(theme, "events")
    below = [0] * len(_HOURS)
    for outcome in OUTCOMES:
        counts = _by_hour(report, outcome)
        style: dict[str, Any] = {
            "color": _COLOURS[outcome],
            "hatch": _HATCHES[outcome],
            "linewidth": 0.3,
        }
        axes.bar(_HOURS, counts, bottom=below, label=outcome, edgecolor=theme.paper, **style)
        below = [lower + count for lower, count in zip(below, counts, strict=True)]
    replayed = _by_hour(report, "replayed")
    axes.plot(_HOURS, replayed, "D-", color=_REPLAYED, markersize=4, label="replayed")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    _legend(axes, theme)
    return figure


def _delays(report: DayReport, theme: Theme) -> Figure:
    figure, axes = _empty(theme, "delay")
    hours = [hour for hour, each in report.hours.items() if each.delay_p50_ms is not None]
    # A log axis has no zero, and clock skew makes negative delays.
    p50 = [max(1, report.hours[hour].delay_p50_ms or 0) for hour in hours]
    p95 = [max(1, report.hours[hour].delay_p95_ms or 0) for hour in hours]
    axes.plot(hours, p95, "s-", color=_P95, markersize=4, label="p95")
    axes.plot(hours, p50, "o-", color=theme.median, markersize=4, label="p50")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(_TICKS_MS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: delay_text(round(value))))
    _legend(axes, theme)
    return figure


def _by_hour(report: DayReport, count: str) -> list[int]:
    return [report.hours[hour].counts[count] if hour in report.hours else 0 for hour in _HOURS]


def _empty(theme: Theme, measure: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_INCHES, layout="constrained", facecolor=theme.paper)
    axes = figure.add_subplot(facecolor=theme.paper)
    axes.set_xlim(-0.6, 23.6)
    axes.set_xticks(range(0, 24, 3))
    axes.set_xlabel("hour of event time, UTC", color=theme.ink)
    axes.set_ylabel(measure, color=theme.ink)
    axes.tick_params(colors=theme.ink, which="both")
    axes.grid(axis="y", color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.grid)
    return figure, axes


def _legend(axes: Axes, theme: Theme) -> None:
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(
        handles, labels, loc="outside upper center", ncols=6, frameon=False, labelcolor=theme.ink
    )


def _png(figure: Figure) -> bytes:
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI, metadata={"Software": None})
    return drawn.getvalue()
