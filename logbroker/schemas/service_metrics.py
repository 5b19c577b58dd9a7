"""What a scrape of the registry's service reads."""

from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from logbroker.schemas.api import Route
from logbroker.schemas.registry import SchemaRegistry
from logbroker.schemas.state import Outcome

REASONS: Final = tuple(each for each in Outcome if each is not Outcome.COUNTS)
"""Why a record does not count."""

PREFIX: Final = "logbroker_registry_"


class ServiceMetrics:
    """Requests by route and status, and what the registry holds."""

    CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._all = CollectorRegistry()
        ProcessCollector(registry=self._all)
        self._requests = Counter(
            f"{PREFIX}requests_total",
            "Requests by method, route and status; `other` is no route.",
            ("method", "route", "status"),
            registry=self._all,
        )
        self._seconds = Histogram(
            f"{PREFIX}request_seconds",
            "From a request's head to its answer.",
            ("method", "route"),
            registry=self._all,
        )
        self._is_up = Gauge(
            f"{PREFIX}up",
            "1 when the log answered this scrape, so that all schemas are known; else 0.",
            registry=self._all,
        )
        self._subjects = Gauge(
            f"{PREFIX}subjects", "Subjects that are not deleted.", registry=self._all
        )
        self._passed_over = Gauge(
            f"{PREFIX}passed_over_records",
            "Records of the log that do not count; `branch`: of another log that was written to.",
            ("reason",),
            registry=self._all,
        )

    def note(self, route: Route | None, status: int, seconds: float) -> None:
        """Count one request."""
        method, path = ("other", "other") if route is None else (route.method, route.path)
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(method, path).observe(seconds)

    def exposition(self, registry: SchemaRegistry | None) -> bytes:
        """All of it as Prometheus reads it; None where the log does not answer."""
        self._is_up.set(registry is not None)
        if registry is not None:
            self._subjects.set(len(registry.subjects()))
            passed_over = registry.passed_over()
            for reason in REASONS:
                self._passed_over.labels(reason).set(passed_over.get(reason, 0))
        return generate_latest(self._all)
