"""Plots of the log over time, with coordinates worked out by hand."""

import pytest

from app.console.log_plots import StepPlot, lag_plot, size_plot, written_plot
from app.console.plots import ROWS_MAX, STEPS_MAX
from app.console.time_ranges import TimeRange, parse_range, time_ranges
from app.domain.log_samples import LogSample, SampleSpan

MINUTE_MS = 60_000
TEN_MS = 10 * MINUTE_MS
NINE_MS = 1_795_338_000_000
"""2026-11-22 09:00:00."""

RANGES = time_ranges(5, NINE_MS)
HOUR = RANGES[0]
MINUTES = SampleSpan.MINUTE


def drawn(plot: StepPlot | None) -> StepPlot:
    assert plot is not None
    return plot


def lags(shown: TimeRange, *levels: tuple[int, int]) -> list[LogSample]:
    """Return samples from pairs of minutes after the start of the range and a lag."""
    return [LogSample(shown.from_ms + minute * MINUTE_MS, lag) for minute, lag in levels]


def test_without_samples_there_is_no_plot() -> None:
    assert lag_plot([], MINUTES, HOUR, "all groups") is None
    assert size_plot([LogSample(NINE_MS - TEN_MS, 5)], MINUTES, HOUR, "the topic") is None
    assert written_plot([LogSample(NINE_MS - TEN_MS, 5)], MINUTES, HOUR, "the topic") is None


def test_a_lag_is_a_step_for_each_sample_with_gaps() -> None:
    # An hour has 600 units: 10 a minute. The axis ends at 100.
    plot = drawn(lag_plot(lags(HOUR, (0, 50), (1, 100), (30, 25)), MINUTES, HOUR, "all groups"))
    assert plot.line == "M0.0 50.0H10.0V0.0H20.0M300.0 75.0H310.0"
    assert plot.area == "M0.0 100V50.0H10.0V0.0H20.0V100H0.0ZM300.0 100V75.0H310.0V100H300.0Z"
    assert plot.levels == ("100", "50", "0")
    assert plot.times.texts == ("08:00", "08:30", "09:00")
    assert plot.title == "Lag of all groups"
    assert plot.words.endswith("highest 100, last 25.")
    assert [row.value for row in plot.rows] == ["100", "25"]


def test_messages_are_a_rate_from_the_sample_before_the_range() -> None:
    samples = lags(HOUR, (-1, 1_000), (0, 1_120), (1, 1_720))
    plot = drawn(written_plot(samples, MINUTES, HOUR, "all topics"))
    assert plot.unit == "messages per second"
    # 2/s, then 10/s, on an axis to 10.
    assert plot.line == "M0.0 80.0H10.0V0.0H20.0"
    assert plot.levels == ("10", "5", "0")


def test_few_messages_are_a_rate_per_minute_or_hour() -> None:
    slow = drawn(written_plot(lags(HOUR, (0, 10), (1, 13)), MINUTES, HOUR, "all topics"))
    assert slow.unit == "messages per minute"
    idle = drawn(written_plot(lags(HOUR, (0, 10), (1, 10)), MINUTES, HOUR, "all topics"))
    assert idle.line == "M10.0 100.0H20.0"


def test_sizes_have_units() -> None:
    samples = [LogSample(HOUR.from_ms, 1, 3_000_000), LogSample(HOUR.from_ms + MINUTE_MS, 1, None)]
    plot = drawn(size_plot(samples, MINUTES, HOUR, "the topic"))
    assert plot.levels == ("4.0 MB", "2.0 MB", "0 B")
    assert plot.line == "M0.0 25.0H10.0"


@pytest.mark.parametrize("name", [each.name for each in RANGES])
def test_a_plot_of_any_range_is_small_and_keeps_the_highest_lag(name: str) -> None:
    shown = parse_range(name, RANGES)
    span = SampleSpan.since(shown.from_ms, shown.to_ms)
    starts = range(shown.from_ms, shown.to_ms, span.width_ms)
    peak = len(starts) // 2
    samples = [LogSample(start, 9_000 if n == peak else n % 7) for n, start in enumerate(starts)]
    plot = drawn(lag_plot(samples, span, shown, "all groups"))
    assert plot.line.count("H") <= STEPS_MAX
    assert len(plot.rows) <= ROWS_MAX
    assert sum(row.value == "9\N{NARROW NO-BREAK SPACE}000" for row in plot.rows) == 1
    assert len(plot.line) + len(plot.area) < 8_000
