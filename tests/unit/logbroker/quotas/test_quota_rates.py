"""The arithmetic of quotas; the numbers follow from Kafka's formulas by hand."""

import pytest

from logbroker.quotas.rates import WINDOW_S, Rate, TokenBucket


def test_a_new_client_may_begin_with_a_burst_of_ten_seconds() -> None:
    rate = Rate()
    rate.record(1_000, 50.0)
    assert rate.per_second(50.0) == 100
    assert rate.throttle_s(100, 50.0) == 0


def test_the_throttle_time_brings_the_rate_back_to_the_limit() -> None:
    rate = Rate()
    rate.record(3_000, 50.0)
    # 3,000 bytes in 10 s are 300 a second; at 100 a second they take 30 s.
    assert rate.throttle_s(100, 50.0) == 20


def test_the_window_covers_the_time_since_its_oldest_sample() -> None:
    rate = Rate()
    for second in range(11):
        rate.record(100, float(second))
    assert rate.per_second(10.5) == pytest.approx(1_100 / 10.5)


def test_what_is_older_than_the_window_does_not_count() -> None:
    rate = Rate()
    rate.record(1_000, 0.0)
    rate.record(10, 5.0)
    assert rate.per_second(WINDOW_S - 0.1) == pytest.approx(1_010 / 10.9)
    assert rate.per_second(WINDOW_S) == 1
    assert not rate.is_idle(WINDOW_S)
    assert rate.is_idle(5.0 + WINDOW_S)


def test_a_steady_rate_at_the_limit_is_throttled_by_at_most_one_message() -> None:
    rate = Rate()
    for tick in range(1_000):
        rate.record(10, tick / 10)
        assert rate.throttle_s(100, tick / 10) < 0.2, tick


def test_what_was_taken_back_does_not_count() -> None:
    rate = Rate()
    rate.record(500, 0.0)
    rate.record(-500, 0.5)
    assert rate.is_idle(0.5)


def test_a_bucket_is_full_at_first_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(2.0, 0.0)
    bucket.take(22, 2.0, 0.0)
    assert not bucket.is_overdrawn(2.0, 0.0)
    bucket.take(10, 2.0, 0.0)
    assert bucket.is_overdrawn(2.0, 0.0)
    assert bucket.throttle_s(2.0, 0.0) == 5
    assert bucket.throttle_s(2.0, 2.0) == 3
    assert not bucket.is_overdrawn(2.0, 5.0)


def test_a_bucket_keeps_the_tokens_of_one_window() -> None:
    bucket = TokenBucket(1.0, 0.0)
    bucket.take(5, 1.0, 0.0)
    assert not bucket.is_full(1.0, 4.0)
    assert bucket.is_full(1.0, 500.0)
    bucket.take(WINDOW_S + 1, 1.0, 500.0)
    assert bucket.is_overdrawn(1.0, 500.0)
