"""What Prometheus may ask about the API."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.domain.model import JobStatistics
from app.domain.states import ReplayState

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

# From a look-up in memory to a batch of thousands that waits for the disk.
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The numbers of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rewind_http_requests",
            "Requests answered, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "rewind_http_request_seconds",
            "Time from the head of a request to the end of its answer, by route.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._events = Counter(
            "rewind_events_published",
            "Events that the log acknowledged, by topic.",
            ("topic",),
            registry=self.registry,
        )
        self.audit_dropped = Counter(
            "rewind_audit_dropped_reports",
            "Audit reports that were dropped.",
            registry=self.registry,
        )
        self._unauthorized = Counter(
            "rewind_http_unauthorized",
            "Requests refused because they showed no good key.",
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "rewind_http_rate_limited",
            "Requests refused because there were too many, by the scope of their key.",
            ("scope",),
            registry=self.registry,
        )

    def count_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one answer. `route` is a template, so that ids make no series of their own."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(duration_s)

    def count_events(self, topic: str, count: int) -> None:
        """Count events that are in the log."""
        self._events.labels(topic).inc(count)

    def count_unauthorized(self) -> None:
        """Count a request that showed no good key."""
        self._unauthorized.inc()

    def count_rate_limited(self, scope: str) -> None:
        """Count a request that was one too many; `scope` is its key's, or "none"."""
        self._rate_limited.labels(scope).inc()

    def exposition(self, jobs: JobStatistics | None) -> bytes:
        """Everything counted, and the replays as of now, in Prometheus' text format.

        `jobs` is None when the database does not answer: then nothing is said of them, since
        an old number would look like a new one.
        """
        return generate_latest(self.registry) + generate_latest(_registry_of(jobs))


def _registry_of(jobs: JobStatistics | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    is_up = Gauge("rewind_database_up", "Whether the database answers.", registry=registry)
    is_up.set(0 if jobs is None else 1)
    if jobs is not None:
        _describe_jobs(jobs, registry)
    return registry


def _describe_jobs(jobs: JobStatistics, registry: CollectorRegistry) -> None:
    states = Gauge("rewind_replays", "Replays, by state.", ("state",), registry=registry)
    for state in ReplayState:
        states.labels(state.value).set(jobs.by_state.get(state, 0))
    oldest = Gauge(
        "rewind_replays_oldest_open_seconds",
        "How long the OPEN replay that waits longest has waited; 0 without one.",
        ("origin",),
        registry=registry,
    )
    for origin, waited_s in jobs.oldest_open_s.items():
        oldest.labels(origin).set(waited_s)
    unrestored = Gauge(
        "rewind_replays_oldest_unrestored_seconds",
        "How long the replay that waits longest for a restore has waited; 0 without one.",
        ("origin",),
        registry=registry,
    )
    for origin, waited_s in jobs.oldest_unrestored_s.items():
        unrestored.labels(origin).set(waited_s)
    late = Gauge(
        "rewind_replays_late_heartbeats",
        "Replays held by a worker whose lease has ended.",
        ("origin",),
        registry=registry,
    )
    for origin, count in jobs.late_heartbeats.items():
        late.labels(origin).set(count)
