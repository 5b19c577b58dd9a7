"""What outcomes tell of a receiver: down, written off, beyond hope, and well again."""

from app.domain.delivery import Rejected, Unreachable
from app.domain.endpoint_health import (
    CONSECUTIVE_FAILED_EVENTS_MAX,
    CONSECUTIVE_FAILED_REQUESTS_MIN,
    CONSECUTIVE_FAILURES_MIN,
    HealthState,
    ProbedEndpointHealth,
)
from app.domain.retry import RetryPolicy

POLICY = RetryPolicy(attempts_max=4, base_s=1, cap_s=60)
SILENT = Unreachable("connection refused")
MIDDLE = 0.5


def down(now_s: float = 0.0) -> ProbedEndpointHealth:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(CONSECUTIVE_FAILURES_MIN):
        health.record_failure(SILENT, now_s, now_s, MIDDLE)
    return health


def probe(health: ProbedEndpointHealth, now_s: float) -> float:
    """Send the next probe when it is due and see it fail: when that was."""
    now_s += health.probe_wait_s(now_s)
    health.record_failure(SILENT, now_s, now_s, MIDDLE)
    return now_s


def test_a_few_failures_among_successes_do_not_stop_the_job() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(10):
        for _ in range(CONSECUTIVE_FAILURES_MIN - 1):
            health.record_failure(SILENT, 0, 0, MIDDLE)
        health.record_success()
    assert health.state is HealthState.HEALTHY


def test_failures_in_a_row_mean_that_it_is_down() -> None:
    assert down().state is HealthState.FAILING


def test_a_receiver_that_asks_for_quiet_gets_it_at_once() -> None:
    health = ProbedEndpointHealth(POLICY)
    health.record_failure(Rejected(429, 7.0, "answered 429"), 100.0, 100.0, MIDDLE)
    assert health.state is HealthState.FAILING
    assert health.probe_wait_s(100.0) == 7.0
    assert health.probe_wait_s(104.0) == 3.0
    assert health.probe_wait_s(200.0) == 0.0


def test_probes_grow_rarer_as_retries_do() -> None:
    health = down()
    times = [0.0]
    while health.state is HealthState.FAILING:
        times.append(probe(health, times[-1]))
    assert times == [0.0, 1.0, 5.0, 21.0]
    assert health.state is HealthState.DOWN


def test_what_was_under_way_when_it_went_down_is_no_probe() -> None:
    health = down(now_s=100.0)
    for _ in range(50):
        health.record_failure(SILENT, 99.0, 130.0, MIDDLE)
    assert health.state is HealthState.FAILING


def test_one_success_brings_it_back_even_when_it_was_written_off() -> None:
    health = down()
    now_s = 0.0
    while health.state is HealthState.FAILING:
        now_s = probe(health, now_s)
    health.record_success()
    assert health.state is HealthState.HEALTHY
    health.record_failure(SILENT, now_s, now_s, MIDDLE)
    assert health.state is HealthState.HEALTHY


def test_a_receiver_that_judges_a_request_is_well() -> None:
    health = down()
    health.record_failure(Rejected(400, None, "answered 400"), 5.0, 5.0, MIDDLE)
    assert health.state is HealthState.HEALTHY


def test_a_long_row_of_lost_events_exceeds_failure_limit() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(CONSECUTIVE_FAILED_EVENTS_MAX - 1):
        health.record_failed_events(1)
    assert not health.exceeds_failure_limit
    health.record_failed_events(1)
    assert health.exceeds_failure_limit


def test_a_few_large_requests_are_not_beyond_hope_yet() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(CONSECUTIVE_FAILED_REQUESTS_MIN - 1):
        health.record_failed_events(1_000)
    assert not health.exceeds_failure_limit
    health.record_failed_events(1_000)
    assert health.exceeds_failure_limit


def test_lost_events_between_successes_are_not_beyond_hope() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(2 * CONSECUTIVE_FAILED_EVENTS_MAX):
        health.record_failed_events(1)
        health.record_success()
    assert not health.exceeds_failure_limit
