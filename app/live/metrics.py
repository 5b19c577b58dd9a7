"""What a live process counts about itself."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.domain.delivery import LiveOutcome
from app.webhooks.metrics import DeliveryMetrics

Lags = Callable[[], dict[int, int]]

_LATENCIES_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    *(900.0, 3_600.0, 21_600.0, 86_400.0),
)


class LiveMetrics:
    """Metrics of one live process; shown only where `serve` was called."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._matched = self._counter(
            "rewind_live_events", "Records of `events` that were checked, by the result.", "result"
        )
        self.owed = self._counter(
            "rewind_live_owed_events", "Events that the matcher wrote to `delivery_log`."
        )
        self.attempts = DeliveryMetrics(self.registry)
        self._settled = self._counter(
            "rewind_live_settled_events",
            "Records of `delivery_log` whose outcome is written, by what became of them.",
            "outcome",
        )
        self.duplicates = self._counter(
            "rewind_live_duplicate_events", "Records of `delivery_log` that were known already."
        )
        self.mirrored = self._counter(
            "rewind_live_mirrored",
            "Records of `delivery_log` that another data centre has made, and delivers.",
        )
        self.registry_failures = self._counter(
            "rewind_live_registry_failures",
            "Look-ups of a schema that the registry did not answer, while the matcher waits.",
        )
        self.audit_dropped = self._counter(
            "rewind_live_audit_dropped_reports",
            "Audit reports that were dropped.",
        )
        self.untallied = self._counter(
            "rewind_live_untallied_events",
            "Settled events that the statistics of webhooks leave out, for want of room.",
        )
        self.disabled_webhooks = self._counter(
            "rewind_live_disabled_webhooks",
            "Webhooks that were disabled for their receiver.",
        )
        self._after_event_s = self._latency(
            "rewind_live_delivered_after_event_seconds",
            "From an event's own time until its receiver took it.",
        )
        self._after_read_s = self._latency(
            "rewind_live_delivered_after_read_seconds",
            "From when an event was read from `delivery_log` until its receiver took it.",
        )

    def serve(self, host: str, port: int) -> None:
        """Show the metrics over HTTP, from a thread of its own."""
        start_http_server(port, host, self.registry)

    def count_checked(self, result: str, count: int) -> None:
        """Count records of `events`: matched, unmatched, malformed, or mirrored."""
        self._matched.labels(result).inc(count)

    def count_delivery(self, event_ms: int, since_read_s: float) -> None:
        """Count an event that was taken now: its time, and how long it had been here."""
        self._after_event_s.observe(max(0.0, time.time() - event_ms / 1_000))
        self._after_read_s.observe(since_read_s)

    def count_settled(self, outcome: LiveOutcome) -> None:
        """Count a record of `delivery_log` that is done with."""
        self._settled.labels(outcome).inc()

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Show a number that is asked for when somebody looks."""
        Gauge(name, what, registry=self.registry).set_function(value)

    def watch_lags(self, lags_by_group: dict[str, Lags]) -> None:
        """Show how far consumer groups are behind."""
        self.registry.register(_LagCollector(lags_by_group))

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def _latency(self, name: str, what: str) -> Histogram:
        return Histogram(name, what, buckets=_LATENCIES_S, registry=self.registry)


class _LagCollector(Collector):
    def __init__(self, lags_by_group: dict[str, Lags]) -> None:
        self._lags_by_group = lags_by_group

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "rewind_live_lag_records",
            "Records that a group has not read yet, of the partitions that this process has.",
            labels=["group", "partition"],
        )
        for group, lags in self._lags_by_group.items():
            for partition, records in lags().items():
                lag.add_metric([group, str(partition)], records)
        yield lag
