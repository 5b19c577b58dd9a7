import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tallies import (
    TOOK_MS_BOUNDS,
    DeliveryTally,
    Span,
    last_hour_from_ms,
    merged,
    summed,
)

HOUR_MS = 3_600_000


def took(**counts: int) -> tuple[int, ...]:
    """Latency counts by the upper bound of their bucket."""
    bounds = (*(f"ms_{bound}" for bound in TOOK_MS_BOUNDS), "longer")
    assert counts.keys() <= set(bounds)
    return tuple(counts.get(bound, 0) for bound in bounds)


@pytest.mark.parametrize(
    ("counts", "share", "at_most_ms"),
    [
        ({"ms_50": 1}, 0.5, 50),
        ({"ms_50": 1, "ms_250": 1}, 0.5, 50),
        ({"ms_50": 1, "ms_250": 2}, 0.5, 250),
        ({"ms_50": 19, "ms_5000": 1}, 0.95, 50),
        ({"ms_50": 18, "ms_5000": 2}, 0.95, 5_000),
        ({"ms_50": 1, "longer": 1}, 0.95, math.inf),
        ({"ms_100": 3}, 0, 100),
        ({}, 0.5, None),
    ],
)
def test_a_percentile_is_the_upper_bound_of_its_bucket(
    counts: dict[str, int], share: float, at_most_ms: float | None
) -> None:
    assert DeliveryTally(0, took=took(**counts)).percentile_ms(share) == at_most_ms


@given(st.lists(st.integers(0, 5), min_size=8, max_size=8).filter(any), st.floats(0, 1))
def test_a_percentile_equals_that_of_a_sorted_list(counts: list[int], share: float) -> None:
    bounds = (*TOOK_MS_BOUNDS, math.inf)
    answers = [bound for bound, count in zip(bounds, counts, strict=True) for _ in range(count)]
    expected = answers[max(1, math.ceil(share * len(answers))) - 1]
    assert DeliveryTally(0, took=tuple(counts)).percentile_ms(share) == expected


def test_the_success_rate_excludes_events_of_disabled_webhooks() -> None:
    assert DeliveryTally(0, delivered=6, failed=1, skipped=1, disabled=100).success_rate == 0.75
    assert DeliveryTally(0, failed=1).success_rate == 0
    assert DeliveryTally(0, disabled=100).success_rate is None


def test_a_sum_of_tallies_has_the_latest_of_their_times() -> None:
    one = DeliveryTally(0, 1, 2, 3, 4, took(ms_50=1, longer=1), 70, 900)
    other = DeliveryTally(5, 10, 20, 30, 40, took(ms_50=10), 80, 800)
    expected = DeliveryTally(3, 11, 22, 33, 44, took(ms_50=11, longer=1), 80, 900)
    assert summed([one, other], 3) == expected
    assert expected.settled == 110
    assert expected.missed == 99
    assert summed([], 3) == DeliveryTally(3)


def test_tallies_are_merged_into_equal_spans_of_a_period() -> None:
    tallies = [DeliveryTally(start, delivered=1) for start in (99, 100, 105, 109, 120, 129, 130)]
    spans = merged(tallies, 100, 125, 10)
    assert [each.start_ms for each in spans] == [100, 110, 120]
    assert [each.delivered for each in spans] == [3, 0, 2]


@pytest.mark.parametrize("past_ms", [0, 1, 299_999])
def test_the_last_hour_starts_with_the_span_that_contains_its_start(past_ms: int) -> None:
    first_ms = last_hour_from_ms(10 * HOUR_MS + past_ms)
    assert first_ms == 9 * HOUR_MS
    assert first_ms % Span.SETTLED.width_ms == 0
