"""Metrics of a live process."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.domain.delivery import LiveOutcome
from app.log.metrics import LogMetrics
from app.log.topics import DELIVERY_LOG, EVENTS
from app.webhooks.metrics import DeliveryMetrics
from logbroker.metrics_http import MetricsAccess, Problems, serve_metrics
from logbroker.unlocked_metrics import CounterCollector, HistogramCollector

Lags = Callable[[], dict[int, int]]

_LATENCIES_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    *(900.0, 3_600.0, 21_600.0, 86_400.0),
)


class LiveMetrics:
    """Metrics of one live process; exposed only after `serve`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.problems: Problems = lambda: ("starting",)
        """Why the process is not ready."""
        self._events = self._counter(
            "rewind_live_events",
            "Records of `events` that were matched against the rules, by result.",
            "result",
        )
        self.matched_deliveries = self._counter(
            "rewind_live_matched_deliveries",
            "Deliveries that the matcher wrote to `delivery_log`.",
        )
        self.attempts = DeliveryMetrics(self.registry)
        self.log = LogMetrics(self.registry, EVENTS, DELIVERY_LOG)
        self._settled = CounterCollector(
            "rewind_live_settled_events",
            "Records of `delivery_log` whose outcome is written, by outcome.",
            self.registry,
            "outcome",
            map(_label, LiveOutcome),
        )
        self.scheduled_retries = self._counter(
            "rewind_live_scheduled_retries",
            "Events whose live attempts failed, and for which a scheduled retry was stored.",
        )
        self.duplicates = self._counter(
            "rewind_live_duplicate_events", "Records of `delivery_log` that were duplicates."
        )
        self.mirrored = self._counter(
            "rewind_live_mirrored",
            "Records of `delivery_log` that a mirror copied from another data centre.",
        )
        self.registry_failures = self._counter(
            "rewind_live_registry_failures",
            "Failed schema lookups, for which the matcher waits.",
        )
        self.audit_dropped = self._counter(
            "rewind_live_audit_dropped_reports",
            "Audit reports that were dropped.",
        )
        self.attempts_dropped = self._counter(
            "rewind_live_attempts_dropped_records",
            "Failed attempts that `delivery_attempts` did not accept.",
        )
        self.statistics_dropped = self._counter(
            "rewind_live_statistics_dropped_events",
            "Settled events missing from the statistics because too many webhooks wait.",
        )
        self.disabled_webhooks = self._counter(
            "rewind_live_disabled_webhooks",
            "Webhooks that were disabled because of their receivers' responses.",
        )
        self._after_event_s = self._latency(
            "rewind_live_delivered_after_event_seconds",
            "Time from the event until its receiver accepted it.",
        )
        self._after_read_s = self._latency(
            "rewind_live_delivered_after_read_seconds",
            "Time from reading `delivery_log` until the receiver accepted the event.",
        )

    def serve(self, host: str, port: int, access: MetricsAccess) -> None:
        """Expose the metrics and `/readyz` over HTTP, from separate threads."""

        def problems() -> Sequence[str]:
            return self.problems()

        serve_metrics(self.registry, host, port, access, problems)

    def count_events(self, result: str, count: int) -> None:
        """Count records of `events`; `result` is matched, unmatched, malformed or mirrored."""
        self._events.labels(result).inc(count)

    def count_delivery(self, event_ms: int, since_read_s: float) -> None:
        """Count an event accepted now: its latency since its event time, and since reading."""
        self._after_event_s.observe(max(0.0, time.time() - event_ms / 1_000))
        self._after_read_s.observe(since_read_s)

    def count_settled(self, outcome: LiveOutcome) -> None:
        """Count a settled record of `delivery_log`."""
        self._settled.add(value=_label(outcome))

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Expose a value that is read at each scrape."""
        Gauge(name, what, registry=self.registry).set_function(value)

    def watch_lags(self, lags_by_group: dict[str, Lags]) -> None:
        """Expose the lag of consumer groups."""
        self.registry.register(_LagCollector(lags_by_group))

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def _latency(self, name: str, what: str) -> HistogramCollector:
        return HistogramCollector(name, what, self.registry, _LATENCIES_S)


class _LagCollector(Collector):
    def __init__(self, lags_by_group: dict[str, Lags]) -> None:
        self._lags_by_group = lags_by_group

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "rewind_live_lag_records",
            "Consumer lag of a group, in the partitions assigned to this process.",
            labels=["group", "partition"],
        )
        for group, lags in self._lags_by_group.items():
            for partition, records in lags().items():
                lag.add_metric([group, str(partition)], records)
        yield lag


def _label(outcome: LiveOutcome) -> str:
    """The value of the label `outcome`, whose names are those of the API."""
    return outcome.name.lower()
