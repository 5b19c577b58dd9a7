"""Endpoint health: healthy, failing, down, and the failure limit."""

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


def failing(now_s: float = 0.0) -> ProbedEndpointHealth:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(CONSECUTIVE_FAILURES_MIN):
        health.record_failure(SILENT, now_s, now_s, MIDDLE)
    return health


def probe(health: ProbedEndpointHealth, now_s: float) -> float:
    """Fail the next probe when it is due; returns its time."""
    now_s += health.probe_wait_s(now_s)
    health.record_failure(SILENT, now_s, now_s, MIDDLE)
    return now_s


def test_a_few_failures_between_successes_keep_the_endpoint_healthy() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(10):
        for _ in range(CONSECUTIVE_FAILURES_MIN - 1):
            health.record_failure(SILENT, 0, 0, MIDDLE)
        health.record_success()
    assert health.state is HealthState.HEALTHY


def test_consecutive_failures_make_an_endpoint_failing() -> None:
    assert failing().state is HealthState.FAILING


def test_a_retry_after_header_makes_an_endpoint_failing_at_once() -> None:
    health = ProbedEndpointHealth(POLICY)
    health.record_failure(Rejected(429, 7.0, "answered 429"), 100.0, 100.0, MIDDLE)
    assert health.state is HealthState.FAILING
    assert health.probe_wait_s(100.0) == 7.0
    assert health.probe_wait_s(104.0) == 3.0
    assert health.probe_wait_s(200.0) == 0.0


def test_probes_follow_the_waits_of_the_retry_policy() -> None:
    health = failing()
    times = [0.0]
    while health.state is HealthState.FAILING:
        times.append(probe(health, times[-1]))
    assert times == [0.0, 1.0, 5.0, 21.0]
    assert health.state is HealthState.DOWN


def test_requests_in_flight_when_the_endpoint_began_to_fail_are_no_probes() -> None:
    health = failing(now_s=100.0)
    for _ in range(50):
        health.record_failure(SILENT, 99.0, 130.0, MIDDLE)
    assert health.state is HealthState.FAILING


def test_one_success_makes_an_endpoint_healthy_even_when_it_was_down() -> None:
    health = failing()
    now_s = 0.0
    while health.state is HealthState.FAILING:
        now_s = probe(health, now_s)
    health.record_success()
    assert health.state is HealthState.HEALTHY
    health.record_failure(SILENT, now_s, now_s, MIDDLE)
    assert health.state is HealthState.HEALTHY


def test_a_permanent_rejection_makes_an_endpoint_healthy() -> None:
    health = failing()
    health.record_failure(Rejected(400, None, "answered 400"), 5.0, 5.0, MIDDLE)
    assert health.state is HealthState.HEALTHY


def test_a_thousand_failed_events_exceed_the_failure_limit() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(CONSECUTIVE_FAILED_EVENTS_MAX - 1):
        health.record_failed_events(1)
    assert not health.exceeds_failure_limit
    health.record_failed_events(1)
    assert health.exceeds_failure_limit


def test_a_few_large_requests_do_not_exceed_the_failure_limit() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(CONSECUTIVE_FAILED_REQUESTS_MIN - 1):
        health.record_failed_events(1_000)
    assert not health.exceeds_failure_limit
    health.record_failed_events(1_000)
    assert health.exceeds_failure_limit


def test_failed_events_between_successes_do_not_exceed_the_failure_limit() -> None:
    health = ProbedEndpointHealth(POLICY)
    for _ in range(2 * CONSECUTIVE_FAILED_EVENTS_MAX):
        health.record_failed_events(1)
        health.record_success()
    assert not health.exceeds_failure_limit
