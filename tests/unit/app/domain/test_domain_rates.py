"""The pace of a replay: never above its rate, and never needlessly below."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.rates import SLACK_S, RateLimiter

RATES = st.integers(1, 1_000_000)


def starts(rate: int, requests: list[tuple[int, float]]) -> list[tuple[float, int]]:
    """When each request of so many events starts, if its sender asks so late for it."""
    now_s, pace, begun = 0.0, RateLimiter(rate, 0.0), []
    for size, late_s in requests:
        now_s += late_s
        now_s += pace.reserve(size, now_s)
        begun.append((now_s, size))
    return begun


@pytest.mark.parametrize("rate", [1, 7, 2_500, 1_000_000])
def test_it_is_as_fast_as_it_may_be(rate: int) -> None:
    begun = starts(rate, [(1, 0.0)] * 1_001)
    assert begun[-1][0] == pytest.approx(1_000 / rate)


def test_the_first_event_does_not_wait_and_the_next_does() -> None:
    pace = RateLimiter(1, 100.0)
    assert pace.reserve(1, 100.0) == 0.0
    assert pace.reserve(1, 100.0) == pytest.approx(1.0)
    assert pace.reserve(1, 100.5) == pytest.approx(1.5)


def test_a_batch_makes_the_next_one_wait_for_all_its_events() -> None:
    pace = RateLimiter(200, 0.0)
    assert pace.reserve(100, 0.0) == 0.0
    assert pace.reserve(1, 0.0) == pytest.approx(0.5)


def test_who_is_late_each_time_does_not_fall_behind() -> None:
    begun = starts(1_000, [(40, 0.8 * SLACK_S)] * 101)
    assert begun[-1][0] == pytest.approx(100 * 40 / 1_000 + 0.8 * SLACK_S)


def test_time_that_was_not_used_is_lost() -> None:
    pace = RateLimiter(10, 0.0)
    assert pace.reserve(1, 1_000.0) == 0.0
    assert pace.reserve(1, 1_000.0) == pytest.approx(0.1 - SLACK_S)


@given(
    RATES,
    st.lists(st.tuples(st.integers(1, 1_000), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_no_stretch_of_time_has_more_than_its_share(
    rate: int, requests: list[tuple[int, float]]
) -> None:
    begun = starts(rate, requests)
    for first, (since_s, _) in enumerate(begun):
        sent = 0
        for at_s, size in begun[first:]:
            # All that started before this one must have had its time, but for the slack.
            assert sent <= rate * (at_s - since_s + SLACK_S) * (1 + 1e-6) + 1e-3
            sent += size
