"""The rate limiter never exceeds its rate or falls behind it; the throughput estimate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.rates import FAST_PER_S, SLACK_S, RateLimiter, ThroughputEstimate

RATES = st.integers(1, 1_000_000)


def starts(rate: int, requests: list[tuple[int, float]]) -> list[tuple[float, int]]:
    """When each request starts, given its number of events and the delay of its sender."""
    now_s, limiter, started = 0.0, RateLimiter(rate, 0.0), []
    for size, late_s in requests:
        now_s += late_s
        now_s += limiter.reserve(size, now_s)
        started.append((now_s, size))
    return started


def record_deliveries(estimate: ThroughputEstimate, count: int, now_s: float) -> None:
    for _ in range(count):
        estimate.record_delivery(now_s)


@pytest.mark.parametrize("rate", [1, 7, 2_500, 1_000_000])
def test_a_sender_that_is_never_late_reaches_the_rate(rate: int) -> None:
    started = starts(rate, [(1, 0.0)] * 1_001)
    assert started[-1][0] == pytest.approx(1_000 / rate)


def test_the_first_event_does_not_wait_and_the_next_does() -> None:
    limiter = RateLimiter(1, 100.0)
    assert limiter.reserve(1, 100.0) == 0.0
    assert limiter.reserve(1, 100.0) == pytest.approx(1.0)
    assert limiter.reserve(1, 100.5) == pytest.approx(1.5)


def test_a_batch_makes_the_next_one_wait_for_all_its_events() -> None:
    limiter = RateLimiter(200, 0.0)
    assert limiter.reserve(100, 0.0) == 0.0
    assert limiter.reserve(1, 0.0) == pytest.approx(0.5)


def test_a_sender_that_is_always_slightly_late_reaches_the_rate() -> None:
    started = starts(1_000, [(40, 0.8 * SLACK_S)] * 101)
    assert started[-1][0] == pytest.approx(100 * 40 / 1_000 + 0.8 * SLACK_S)


def test_unused_time_beyond_the_slack_is_lost() -> None:
    limiter = RateLimiter(10, 0.0)
    assert limiter.reserve(1, 1_000.0) == 0.0
    assert limiter.reserve(1, 1_000.0) == pytest.approx(0.1 - SLACK_S)


@given(
    RATES,
    st.lists(st.tuples(st.integers(1, 1_000), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_no_span_of_time_exceeds_the_rate(rate: int, requests: list[tuple[int, float]]) -> None:
    started = starts(rate, requests)
    for first, (since_s, _) in enumerate(started):
        sent = 0
        for at_s, size in started[first:]:
            # All requests before this one must have had their time, except for the slack.
            assert sent <= rate * (at_s - since_s + SLACK_S) * (1 + 1e-6) + 1e-3
            sent += size


def test_a_receiver_is_fast_by_the_current_second_or_the_one_before() -> None:
    estimate = ThroughputEstimate()
    record_deliveries(estimate, FAST_PER_S - 1, 10.1)
    assert not estimate.is_fast(10.2)
    record_deliveries(estimate, 1, 10.9)
    assert estimate.is_fast(10.9)
    assert estimate.is_fast(11.9)
    assert not estimate.is_fast(12.0)


def test_older_deliveries_do_not_count() -> None:
    estimate = ThroughputEstimate()
    record_deliveries(estimate, FAST_PER_S, 10.0)
    record_deliveries(estimate, 1, 15.0)
    assert not estimate.is_fast(15.0)


def test_two_slow_seconds_do_not_add_up_to_a_fast_one() -> None:
    estimate = ThroughputEstimate()
    record_deliveries(estimate, FAST_PER_S - 1, 10.0)
    record_deliveries(estimate, FAST_PER_S - 1, 11.0)
    assert not estimate.is_fast(11.5)
