"""Metrics of what a process cannot read from the log."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.log.unreadable import log_unreadable
from logbroker.client.skipped_batches import SkippedBatch

STALLED: Final = "rewind_log_stalled_partitions"


class LogMetrics:
    """Counts batches that are skipped because no client can read them; any thread may call it."""

    def __init__(self, registry: CollectorRegistry, *topics: str) -> None:
        """`topics` are exported with 0 before the first batch."""
        self._registry = registry
        self._batches = Counter(
            "rewind_log_unreadable_batches",
            "Record batches that were skipped because they cannot be read.",
            ["topic"],
            registry=registry,
        )
        self._offsets = Counter(
            "rewind_log_unreadable_offsets",
            "Offsets of these batches; how many records they held is unknown.",
            ["topic"],
            registry=registry,
        )
        for topic in topics:
            self._batches.labels(topic)
            self._offsets.labels(topic)

    def record_unreadable(self, batch: SkippedBatch) -> None:
        """Count and log a batch that is skipped."""
        log_unreadable(batch)
        self._batches.labels(batch.topic).inc()
        self._offsets.labels(batch.topic).inc(batch.offsets)

    def watch_stalled(self, stalled: Mapping[str, Callable[[], int]]) -> None:
        """Expose how many partitions make no progress, by topic."""
        self._registry.register(_StalledCollector(stalled))


class _StalledCollector(Collector):
    def __init__(self, stalled: Mapping[str, Callable[[], int]]) -> None:
        self._stalled = stalled

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            STALLED,
            "Partitions without progress for a minute although the log has records to read.",
            labels=["topic"],
        )
        for topic, count in self._stalled.items():
            family.add_metric([topic], count())
        yield family
