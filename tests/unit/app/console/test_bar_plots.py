"""Bar plots of live deliveries and missed events, with their text alternative."""

import pytest

from app.console.plots import HEIGHT, WIDTH, deliveries_plot, missed_plot
from app.domain.hours import HOUR_MS
from app.domain.missed import MissedHour
from app.domain.tallies import DeliveryTally, Span, merged
from app.domain.windows import DAY_MS

WIDTH_MS = Span.SETTLED.width_ms

# 2026-11-22T08:00:00Z
START_MS = 1_795_334_400_000


def hour(start_ms: int, missed: int, *, is_replayed: bool = False) -> MissedHour:
    return MissedHour(start_ms, failed=missed, skipped=0, disabled=0, is_replayed=is_replayed)


def test_bars_are_placed_by_time_with_missed_events_on_top() -> None:
    tallies = [
        DeliveryTally(START_MS, delivered=60, failed=20, skipped=15, disabled=5),
        DeliveryTally(START_MS + 3 * WIDTH_MS, delivered=50),
    ]
    spans = merged(tallies, START_MS, START_MS + 4 * WIDTH_MS, WIDTH_MS)
    plot = deliveries_plot(spans, WIDTH_MS)
    first, last = plot.bars
    assert plot.levels == ("100", "50", "0")
    assert (first.x, last.x) == (0, WIDTH * 3 / 4)
    assert (first.bad_y, first.bad_height, first.good_y, first.good_height) == (0, 40, 40, 60)
    assert (last.bad_height, last.good_y, last.good_height) == (0, HEIGHT / 2, HEIGHT / 2)
    assert first.words == "08:00: 60 delivered, 40 missed"
    assert plot.times.texts == ("08:00", "08:10", "08:20")
    assert plot.words == (
        "110 events delivered and 40 missed, per 5 minutes from 08:00 to 08:20 UTC."
    )


@pytest.mark.parametrize(("delivered", "failed"), [(1_000_000, 1), (1, 1_000_000), (1, 1)])
def test_one_event_among_a_million_is_visible_and_bars_stay_in_the_box(
    delivered: int, failed: int
) -> None:
    tally = DeliveryTally(START_MS, delivered=delivered, failed=failed)
    (bar,) = deliveries_plot([tally], WIDTH_MS).bars
    assert bar.bad_height > 1
    assert bar.good_height > 0
    assert bar.bad_y >= 0
    assert bar.bad_y + bar.bad_height == pytest.approx(bar.good_y)
    assert bar.good_y + bar.good_height == HEIGHT


def test_an_interval_without_events_has_no_bar() -> None:
    plot = deliveries_plot([DeliveryTally(START_MS)], WIDTH_MS)
    assert (plot.bars, plot.levels) == ((), ("2", "1", "0"))


def test_a_replayed_hour_is_a_good_bar() -> None:
    hours = [hour(START_MS - HOUR_MS, 4), hour(START_MS, 2, is_replayed=True)]
    plot = missed_plot(hours, START_MS - 5 * DAY_MS + 1, START_MS + 1)
    missed, replayed = plot.bars
    assert (missed.good_height, missed.bad_height) == (0, HEIGHT)
    assert (replayed.good_height, replayed.bad_height) == (HEIGHT / 2, 0)
    assert replayed.words == "11-22 08:00: 2 missed, replayed since"
    assert missed.words == "11-22 07:00: 4 missed, not replayed"
    assert plot.times.texts == ("11-17 08:00", "11-19 20:30", "11-22 09:00")
    assert plot.words == (
        "6 events missed, per hour from 2026-11-17 08:00 to 2026-11-22 08:00 UTC: 2 in hours that "
        "were replayed since, 4 in hours that were not."
    )
