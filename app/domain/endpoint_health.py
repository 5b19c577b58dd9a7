"""Endpoint health, derived from the outcomes of delivery attempts.

HEALTHY ──five consecutive failures, or Retry-After──> FAILING ──retry policy exhausted──> DOWN
   ^                                                      │                                 │
   └──────────── the receiver accepts an event, or rejects one permanently ─────────────────┘

Without it, each of 10^5 events of a replay would spend its own retries on a receiver that is down,
for weeks. While the endpoint is FAILING, one request at a time probes it, at the waits of the retry
policy; the other deliveries wait and spend no attempts. When it is DOWN, each request gets a single
attempt. After `CONSECUTIVE_FAILED_EVENTS_MAX` failed events the replay fails.

The live path needs the counts alone: its deliveries have their own retry schedules.
"""

from enum import Enum
from typing import Final

from app.domain.delivery import Rejected, Unreachable
from app.domain.retry import GiveUp, RetryPolicy, is_permanent

CONSECUTIVE_FAILURES_MIN: Final = 5
"""Failed attempts that count as an outage: few enough to notice one soon, more than chance."""

CONSECUTIVE_FAILED_EVENTS_MAX: Final = 1_000
"""A longer list of failures adds no information."""

CONSECUTIVE_FAILED_REQUESTS_MIN: Final = 10
"""One request may hold a thousand events; it alone does not end a replay."""


class EndpointHealth:
    """Counts consecutive failures of one endpoint."""

    def __init__(self) -> None:
        self.consecutive_failures = 0
        """Failed attempts since the last success."""
        self.failed_events = 0
        """Events that were given up since the last success."""
        self.failed_requests = 0

    @property
    def has_outage(self) -> bool:
        """Whether `CONSECUTIVE_FAILURES_MIN` attempts failed."""
        return self.consecutive_failures >= CONSECUTIVE_FAILURES_MIN

    @property
    def exceeds_failure_limit(self) -> bool:
        """Whether so many consecutive events failed that a replay stops."""
        return (
            self.failed_events >= CONSECUTIVE_FAILED_EVENTS_MAX
            and self.failed_requests >= CONSECUTIVE_FAILED_REQUESTS_MIN
        )

    def record_success(self) -> None:
        """Reset all counts: the endpoint accepted a request."""
        self.consecutive_failures = self.failed_events = self.failed_requests = 0

    def record_failed_attempt(self) -> None:
        """Count a failed attempt."""
        self.consecutive_failures += 1

    def record_failed_events(self, events: int) -> None:
        """Count a request with `events` events that was given up."""
        self.failed_events += events
        self.failed_requests += 1


class HealthState(Enum):
    """State of an endpoint that is probed."""

    HEALTHY = "healthy"
    FAILING = "failing"
    DOWN = "down"


class ProbedEndpointHealth(EndpointHealth):
    """The state machine above. Times are seconds of any one clock."""

    def __init__(self, policy: RetryPolicy) -> None:
        super().__init__()
        self._policy = policy
        self._failed_probes = 0
        self._next_probe_s = 0.0
        self.state = HealthState.HEALTHY

    @property
    def is_failing(self) -> bool:
        """Whether the next request is a probe, and others wait for it."""
        return self.state is HealthState.FAILING

    @property
    def next_probe_s(self) -> float | None:
        """When the next probe is due; None unless the endpoint is FAILING."""
        return self._next_probe_s if self.is_failing else None

    def probe_wait_s(self, now_s: float) -> float:
        """Seconds until the next probe is due."""
        return max(0.0, self._next_probe_s - now_s)

    def record_success(self) -> None:
        """Return to HEALTHY: the endpoint accepted a request."""
        super().record_success()
        self._recover()

    def record_failure(
        self, outcome: Rejected | Unreachable, started_s: float, now_s: float, jitter: float
    ) -> None:
        """Count a failed attempt that started at `started_s`; `jitter` is in [0, 1)."""
        if is_permanent(outcome):
            self._recover()  # it processes requests
            return
        self.record_failed_attempt()
        if self.state is HealthState.HEALTHY:
            has_retry_after = isinstance(outcome, Rejected) and outcome.retry_after_s is not None
            if has_retry_after or self.has_outage:
                self._record_failed_probe(outcome, now_s, jitter)
        # Requests in flight when the endpoint began to fail are no probes.
        elif started_s >= self._next_probe_s:
            self._record_failed_probe(outcome, now_s, jitter)

    def _record_failed_probe(
        self, outcome: Rejected | Unreachable, now_s: float, jitter: float
    ) -> None:
        self._failed_probes += 1
        step = self._policy.after_failure(outcome, self._failed_probes, jitter)
        if isinstance(step, GiveUp):
            self.state = HealthState.DOWN
        else:
            self.state = HealthState.FAILING
            self._next_probe_s = now_s + step.seconds

    def _recover(self) -> None:
        self.state = HealthState.HEALTHY
        self.consecutive_failures = 0
        self._failed_probes = 0
