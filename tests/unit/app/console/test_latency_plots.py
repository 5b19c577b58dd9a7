"""Plots of latency percentiles, with their text alternative."""

from app.console.plots import HEIGHT, LATENCY_LEVELS, WIDTH, latency_plot
from app.domain.hours import HOUR_MS
from app.domain.tallies import TOOK_CLASSES, TOOK_MS_BOUNDS, DeliveryTally

# 2026-11-22T08:00:00Z
START_MS = 1_795_334_400_000


def tally(place: int, *took_ms: int) -> DeliveryTally:
    """Return attempts of an hour whose latencies are these bounds; 0 is longer than all."""
    bounds = (*TOOK_MS_BOUNDS, 0)
    took = tuple(took_ms.count(bound) for bound in bounds)
    return DeliveryTally(START_MS + place * HOUR_MS, delivered=len(took_ms), took=took)


def test_each_bucket_has_the_same_height_and_hours_without_attempts_are_gaps() -> None:
    spans = [tally(0, 50, 50, 500), tally(1, 1_000), tally(2), tally(3, 0)]
    plot = latency_plot(spans, HOUR_MS)
    assert plot is not None
    assert plot.p50 == "M0.0 87.5H150.0V37.5H300.0M450.0 0.0H600.0"
    assert plot.p95 == "M0.0 50.0H150.0V37.5H300.0M450.0 0.0H600.0"
    assert [(each.x, each.width) for each in plot.intervals] == [
        (0, WIDTH / 4),
        (WIDTH / 4, WIDTH / 4),
        (WIDTH * 3 / 4, WIDTH / 4),
    ]
    assert plot.intervals[0].words == "08:00: p50 ≤ 50 ms, p95 ≤ 500 ms"
    assert plot.times.texts == ("08:00", "10:00", "12:00")
    assert plot.words == (
        "Latency of the last attempts, per hour from 08:00 to 12:00 UTC. In all: p50 ≤ 500 ms, "
        "p95 > 5\N{NARROW NO-BREAK SPACE}000 ms."
    )


def test_the_levels_are_those_of_every_second_bucket() -> None:
    bounds_ms = (*TOOK_MS_BOUNDS, 0)
    shown = [bounds_ms[place] for place in range(TOOK_CLASSES - 1, 0, -2)]
    assert shown == [0, 2_500, 500, 100]
    assert LATENCY_LEVELS == ("> 5 s", "2.5 s", "500 ms", "100 ms", "0")
    plot = latency_plot([tally(0, 2_500)], HOUR_MS)
    assert plot is not None
    assert plot.p50 == f"M0.0 {HEIGHT / 4:.1f}H600.0"


def test_without_attempts_there_is_no_plot() -> None:
    assert latency_plot([tally(0), DeliveryTally(START_MS + HOUR_MS, disabled=4)], HOUR_MS) is None
