"""Prometheus metrics of the API."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.domain.model import JobStatistics
from app.domain.states import ReplayState

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

# From a lookup in memory to a batch of thousands of events that waits for the disk.
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ApiMetrics:
    """Metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rewind_http_requests",
            "Responses by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "rewind_http_request_seconds",
            "Time from a request's head to the end of its response, by route.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._events = Counter(
            "rewind_events_published",
            "Events acknowledged by the log, by topic.",
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
            "Requests rejected without a valid API key.",
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "rewind_http_rate_limited",
            "Requests rejected by a rate limit or concurrency limit, by scope of the key.",
            ("scope",),
            registry=self.registry,
        )
        self._deleted_rows = Counter(
            "rewind_retention_deleted_rows",
            "Rows of old replays that were deleted, by table.",
            ("table",),
            registry=self.registry,
        )
        self._erased_secrets = Counter(
            "rewind_retention_erased_secrets",
            "Previous secrets of webhooks that were erased after their grace period.",
            registry=self.registry,
        )

    def count_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a response. `route` is a template, so that ids do not create series."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(duration_s)

    def count_events(self, topic: str, count: int) -> None:
        """Count published events."""
        self._events.labels(topic).inc(count)

    def count_unauthorized(self) -> None:
        """Count a request without a valid key."""
        self._unauthorized.inc()

    def count_rate_limited(self, scope: str) -> None:
        """Count a request above a limit; `scope` is that of its key, or "none"."""
        self._rate_limited.labels(scope).inc()

    def count_deleted_rows(self, table: str, count: int) -> None:
        """Count deleted rows of old replays."""
        self._deleted_rows.labels(table).inc(count)

    def count_erased_secrets(self, count: int) -> None:
        """Count previous secrets that were erased."""
        self._erased_secrets.inc(count)

    def exposition(self, jobs: JobStatistics | None) -> bytes:
        """All metrics, and current replay statistics, in Prometheus' text format.

        `jobs` is None if the database does not answer: then their metrics are omitted, since an old
        value would look like a current one.
        """
        return generate_latest(self._merged_registry()) + generate_latest(_registry_of(jobs))

    def _merged_registry(self) -> CollectorRegistry:
        """The metrics of all processes, if they are to be added up; see `rewind api`."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return self.registry
        merged = CollectorRegistry()
        MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
        return merged


def _registry_of(jobs: JobStatistics | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_JobCollector(jobs))
    return registry


class _JobCollector(Collector):
    """Current values, which are not to be added up over processes."""

    def __init__(self, jobs: JobStatistics | None) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """The replay statistics, unless the database does not answer."""
        jobs = self._jobs
        yield GaugeMetricFamily(
            "rewind_database_up", "1 if the database answers, else 0.", 0 if jobs is None else 1
        )
        if jobs is None:
            return
        yield _gauges(
            "rewind_replays",
            "Replays, by state.",
            "state",
            {state.value: jobs.by_state.get(state, 0) for state in ReplayState},
        )
        yield _gauges(
            "rewind_replays_oldest_open_seconds",
            "Age of the oldest OPEN replay; 0 without one.",
            "origin",
            jobs.oldest_open_s,
        )
        yield _gauges(
            "rewind_replays_oldest_unrestored_seconds",
            "Age of the oldest replay that waits for a restore; 0 without one.",
            "origin",
            jobs.oldest_unrestored_s,
        )
        yield _gauges(
            "rewind_replays_late_heartbeats",
            "Replays whose worker's lease has expired.",
            "origin",
            jobs.late_heartbeats,
        )


def _gauges(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, description, labels=[label])
    for text, value in values.items():
        family.add_metric([text], value)
    return family
