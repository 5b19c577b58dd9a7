"""Retry schedules: waits calculated by hand, permanent rejections, Retry-After."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.delivery import Rejected, Unreachable
from app.domain.retry import (
    RETRY_AFTER_S_MAX,
    FixedDelays,
    GiveUp,
    RetryAfter,
    RetryPolicy,
    exceeds_schedule,
    longest_retries_s,
)

DOWN = Unreachable("connection refused")
POLICY = RetryPolicy(attempts_max=6, base_s=1, cap_s=60)
MIDDLE = 0.5


def rejected(status: int, retry_after_s: float | None = None) -> Rejected:
    return Rejected(status, retry_after_s, f"answered {status}")


def test_waits_grow_fourfold_up_to_the_cap() -> None:
    waits = [POLICY.after_failure(DOWN, attempt, MIDDLE) for attempt in range(1, 6)]
    assert waits == [RetryAfter(wait_s) for wait_s in (1, 4, 16, 60, 60)]


def test_the_last_attempt_gives_up_with_the_reason_of_its_outcome() -> None:
    assert POLICY.after_failure(DOWN, 6, MIDDLE) == GiveUp("connection refused")


def test_the_schedule_of_a_webhook_replaces_waits_and_attempts() -> None:
    policy = RetryPolicy(attempts_max=6, base_s=1, cap_s=60, schedule_s=(5, 3_600))
    steps = [policy.after_failure(DOWN, attempt, MIDDLE) for attempt in (1, 2, 3)]
    assert steps == [RetryAfter(5), RetryAfter(3_600), GiveUp("connection refused")]
    assert [policy.backoff_s(attempt) for attempt in (1, 2, 3, 600)] == [5, 3_600, 3_600, 3_600]
    assert policy.after_failure(rejected(503, 10.0), 1, MIDDLE) == RetryAfter(10)


def test_retry_after_may_lengthen_every_pause() -> None:
    assert longest_retries_s((3, 27, RETRY_AFTER_S_MAX + 1)) == 3 * RETRY_AFTER_S_MAX + 1
    assert longest_retries_s(()) == 0


@pytest.mark.parametrize(
    ("pauses_s", "is_longer"),
    [((600, 600), False), ((1_200,), False), ((1, 601), True), ((1, 1, 1), True), ((), False)],
)
def test_a_schedule_exceeds_another_by_number_or_by_time(
    pauses_s: tuple[int, ...], is_longer: bool
) -> None:
    assert exceeds_schedule(pauses_s, (3, 27)) is is_longer


def test_jitter_changes_a_wait_by_up_to_a_fifth() -> None:
    assert POLICY.after_failure(DOWN, 1, 0.0) == RetryAfter(0.8)
    latest = POLICY.after_failure(DOWN, 1, 1.0 - 2**-53)
    assert isinstance(latest, RetryAfter)
    assert latest.seconds == pytest.approx(1.2)


@pytest.mark.parametrize("status", [400, 405, 410, 413, 415, 422, 431, 501])
def test_a_permanent_rejection_gives_up_at_once(status: int) -> None:
    assert POLICY.after_failure(rejected(status), 1, MIDDLE) == GiveUp(f"answered {status}")


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504])
def test_a_temporary_rejection_is_retried(status: int) -> None:
    assert POLICY.after_failure(rejected(status), 1, MIDDLE) == RetryAfter(1)


def test_a_retry_after_header_lengthens_a_wait_but_never_shortens_it() -> None:
    assert POLICY.after_failure(rejected(429, 10.0), 1, MIDDLE) == RetryAfter(10)
    assert POLICY.after_failure(rejected(429, 10.0), 3, MIDDLE) == RetryAfter(16)


def test_a_retry_after_header_is_limited() -> None:
    assert POLICY.after_failure(rejected(503, 86_400.0), 1, MIDDLE) == RetryAfter(120)


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True), st.floats(0, 1e9) | st.none())
def test_every_wait_is_within_the_limits_of_the_policy(
    attempt: int, jitter: float, retry_after_s: float | None
) -> None:
    policy = RetryPolicy(attempts_max=100, base_s=0.5, cap_s=30)
    verdict = policy.after_failure(rejected(503, retry_after_s), attempt, jitter)
    if attempt == 100:
        assert isinstance(verdict, GiveUp)
    else:
        assert isinstance(verdict, RetryAfter)
        assert 0.4 <= verdict.seconds <= 60


def test_fixed_delays_are_those_before_the_next_attempt_and_then_give_up() -> None:
    delays = FixedDelays((0.0, 3.0, 27.0))
    assert delays.after_failure(DOWN, 1) == RetryAfter(3)
    assert delays.after_failure(DOWN, 2) == RetryAfter(27)
    assert delays.after_failure(DOWN, 3) == GiveUp("connection refused")
    assert delays.after_failure(rejected(410), 1) == GiveUp("answered 410")


def test_fixed_delays_honour_retry_after_up_to_a_limit() -> None:
    delays = FixedDelays((0.0, 3.0))
    assert delays.after_failure(rejected(429, 10.0), 1) == RetryAfter(10)
    assert delays.after_failure(rejected(429, 1.0), 1) == RetryAfter(3)
    assert delays.after_failure(rejected(429, 1e6), 1) == RetryAfter(RETRY_AFTER_S_MAX)
