"""What Prometheus may ask about the API."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

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

    def count_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one answer. `route` is a template, so that ids make no series of their own."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(duration_s)

    def count_events(self, topic: str, count: int) -> None:
        """Count events that are in the log."""
        self._events.labels(topic).inc(count)

    def exposition(self) -> bytes:
        """Everything counted, in Prometheus' text format."""
        return generate_latest(self.registry)
