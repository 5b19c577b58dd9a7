"""The rate plot of a replay, with coordinates worked out by hand."""

import re
from itertools import pairwise

import pytest

from app.console.plots import HEIGHT, ROWS_MAX, STEPS_MAX, WIDTH, RatePlot, rate_plot
from app.domain.model import Counts
from app.domain.samples import Sample

NINE_MS = 1_795_338_000_000
"""2026-11-22 09:00:00."""


def samples_of(*events_by_second: tuple[float, int]) -> list[Sample]:
    """Return samples from pairs of seconds after nine and events below the checkpoint."""
    return [
        Sample(NINE_MS + round(second * 1_000), 2 * events, Counts(delivered=events))
        for second, events in events_by_second
    ]


def plot_of(*events_by_second: tuple[float, int]) -> RatePlot:
    plot = rate_plot(samples_of(*events_by_second))
    assert plot is not None
    return plot


def corners(plot: RatePlot) -> list[tuple[float, float]]:
    """Return the end points of the steps."""
    assert re.fullmatch(r"M0 [\d.]+H[\d.]+(V[\d.]+H[\d.]+)*", plot.line), plot.line
    heights = re.findall(r"(?:M0 |V)([\d.]+)H([\d.]+)", plot.line)
    return [(float(x), float(y)) for y, x in heights]


def test_fewer_than_two_samples_have_no_plot() -> None:
    assert rate_plot([]) is None
    assert rate_plot(samples_of((0, 0))) is None


def test_two_samples_are_one_step_at_their_rate() -> None:
    plot = plot_of((0, 0), (10, 150))  # 15/s on an axis to 20
    assert corners(plot) == [(WIDTH, 25.0)]
    assert plot.area == f"{plot.line}V{HEIGHT}H0Z"
    assert plot.levels == ("20", "10", "0")
    assert plot.unit == "second"
    assert plot.times.texts == ("09:00:00", "09:00:05", "09:00:10")


def test_each_step_has_the_width_of_its_time_and_the_height_of_its_rate() -> None:
    plot = plot_of((0, 100), (30, 130), (40, 230))  # 1/s for 30 s, then 10/s for 10 s
    assert corners(plot) == [(450.0, 90.0), (600.0, 0.0)]


def test_duplicates_and_failures_count_as_events() -> None:
    samples = [Sample(NINE_MS, 0, Counts()), Sample(NINE_MS + 1_000, 9, Counts(3, 4, 1))]
    plot = rate_plot(samples)
    assert plot is not None
    assert plot.rows[0].events == 8


def test_a_pause_is_a_step_at_zero() -> None:
    plot = plot_of((0, 0), (10, 100), (20, 100), (30, 200))
    assert corners(plot) == [(200.0, 0.0), (400.0, 100.0), (600.0, 0.0)]


def test_a_replay_without_events_has_a_flat_line() -> None:
    plot = plot_of((0, 0), (60, 0))
    assert corners(plot) == [(WIDTH, HEIGHT)]
    assert plot.levels == ("1", "0.5", "0")
    assert plot.unit == "second"


@pytest.mark.parametrize(
    ("seconds", "events", "levels", "unit"),
    [
        (1, 2_041, ("4\u202f000", "2\u202f000", "0"), "second"),
        (1, 1_000, ("1\u202f000", "500", "0"), "second"),
        (1, 3, ("4", "2", "0"), "second"),
        (60, 30, ("40", "20", "0"), "minute"),
        (3_600, 7, ("8", "4", "0"), "hour"),
        (36_000, 1, ("0.1", "0.05", "0"), "hour"),
    ],
)
def test_the_axis_ends_at_a_round_number_of_a_suitable_unit(
    seconds: int, events: int, levels: tuple[str, ...], unit: str
) -> None:
    plot = plot_of((0, 0), (seconds, events))
    assert (plot.levels, plot.unit) == (levels, unit)


def test_a_plot_over_days_has_dates() -> None:
    plot = plot_of((0, 0), (86_400, 5_000))
    assert plot.times.texts == ("11-22 09:00", "11-22 21:00", "11-23 09:00")


def test_the_text_alternative_has_mean_min_max_and_last_rate() -> None:
    plot = plot_of((0, 0), (10, 300), (40, 330), (50, 430))
    assert plot.words == (
        "430 events from 2026-11-22 09:00:00 to 2026-11-22 09:00:50 UTC. Events per second: "
        "mean 8.6, min 1, max 30, last 10."
    )


def test_four_hundred_samples_are_merged_without_losing_events() -> None:
    samples = [(10.0 * each, each * each) for each in range(401)]
    plot = plot_of(*samples)
    steps = corners(plot)
    assert len(steps) == STEPS_MAX
    assert all(one[0] < next_one[0] for one, next_one in pairwise(steps))
    assert all(0 <= y <= HEIGHT for _, y in steps)
    assert steps[-1][0] == WIDTH
    assert len(plot.rows) <= ROWS_MAX
    assert sum(row.events for row in plot.rows) == 400 * 400
    assert plot.rows[-1].to_ms == NINE_MS + 4_000_000
    assert len(plot.line) + len(plot.area) < 8_000


def test_a_clock_set_back_draws_no_negative_rate() -> None:
    plot = plot_of((0, 0), (1, 900), (2, 100), (3, 1_000))
    assert all(0 <= y <= HEIGHT for _, y in corners(plot))
