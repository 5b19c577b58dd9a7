"""Metrics of the registry's service."""

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

from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.domain.state import Outcome
from logbroker.schemas.rest.api import Route

REASONS: Final = tuple(each for each in Outcome if each is not Outcome.COUNTS)
"""Why a record does not count."""

PREFIX: Final = "logbroker_registry_"


class ServiceMetrics:
    """Requests by route and status, and the size of the registry."""

    CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._all = CollectorRegistry()
        ProcessCollector(registry=self._all)
        self._requests = Counter(
            f"{PREFIX}requests_total",
            "Requests by method, route and status; `other` is an unknown route.",
            ("method", "route", "status"),
            registry=self._all,
        )
        self._seconds = Histogram(
            f"{PREFIX}request_seconds",
            "Time from the head of a request to its response.",
            ("method", "route"),
            registry=self._all,
        )
        self._is_up = Gauge(
            f"{PREFIX}up",
            "1 if the log was reachable at this scrape, else 0.",
            registry=self._all,
        )
        self._subjects = Gauge(
            f"{PREFIX}subjects", "Subjects that are not deleted.", registry=self._all
        )
        self._passed_over = Gauge(
            f"{PREFIX}passed_over_records",
            "Records of the log that do not count; `branch`: of an independently written log.",
            ("reason",),
            registry=self._all,
        )

    def note(self, route: Route | None, status: int, seconds: float) -> None:
        """Count one request."""
        method, path = ("other", "other") if route is None else (route.method, route.path)
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(method, path).observe(seconds)

    def exposition(self, registry: SchemaRegistry | None) -> bytes:
        """Metrics in Prometheus text format; `registry` is None if the log is unreachable."""
        self._is_up.set(registry is not None)
        if registry is not None:
            self._subjects.set(len(registry.subjects()))
            skipped = registry.skipped()
            for reason in REASONS:
                self._passed_over.labels(reason).set(skipped.get(reason, 0))
        return generate_latest(self._all)
