"""The metrics of a mirror, and their HTTP endpoint for Prometheus."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from logbroker import metrics_http
from logbroker.errors import ConfigurationError
from logbroker.histogram import Histogram
from logbroker.metrics_http import MetricsAccess
from logbroker.mirror.domain.partitions import (
    AcknowledgedRecords,
    TopicAndPartition,
    UncopiedSince,
)

PREFIX: Final = "logbroker_mirror_"

DELAY_BOUNDS_S: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0),
)
"""From an immediate copy to one after an outage of a day."""


class MirrorMetric(NamedTuple):
    """The definition of one metric."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_TOPIC: Final = ("topic",)

METRICS: Final[Mapping[str, MirrorMetric]] = {
    "records_total": MirrorMetric("counter", "Records that the destination acknowledged.", _TOPIC),
    "bytes_total": MirrorMetric("counter", "Bytes of their keys and values.", _TOPIC),
    "skipped_total": MirrorMetric("counter", "Records that are not copied.", ("topic", "reason")),
    "records_lost_total": MirrorMetric(
        "counter", "Offsets that the source deleted before they were copied.", _TOPIC
    ),
    "unreadable_batches_total": MirrorMetric(
        "counter", "Record batches that were skipped because they cannot be read.", _TOPIC
    ),
    "unreadable_offsets_total": MirrorMetric("counter", "Offsets of these batches.", _TOPIC),
    "stalled_partitions": MirrorMetric(
        "gauge", "Partitions without progress for a minute although there are records.", _TOPIC
    ),
    "lag_records": MirrorMetric(
        "gauge",
        "Offsets up to the source's log end that are not copied.",
        ("topic", "partition"),
    ),
    "lag_seconds": MirrorMetric(
        "gauge", "How long the oldest uncopied record has been at the source.", _TOPIC
    ),
    "delay_seconds": MirrorMetric(
        "histogram", "From a record's time to its acknowledgement at the destination.", _TOPIC
    ),
    "errors_total": MirrorMetric("counter", "Errors by name.", ("reason",)),
    "restarts_total": MirrorMetric("counter", "Restarts at the committed positions."),
}
"""All metrics, by their names without `PREFIX`."""


class TopicCounts:
    """Counts of one topic."""

    __slots__ = (
        *("bytes", "delays", "lost", "records"),
        *("unreadable_batches", "unreadable_offsets"),
    )

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.lost = 0
        self.unreadable_batches = 0
        self.unreadable_offsets = 0
        self.delays = Histogram(DELAY_BOUNDS_S)

    def record_copied(self, records: AcknowledgedRecords, now_s: float) -> None:
        """Count records that the destination has acknowledged, `now_s` seconds after 1970."""
        self.records += len(records.sizes)
        self.bytes += sum(records.sizes)
        # A record without a time counts as immediate.
        self.delays.observe_all(
            [now_s - each / 1_000 if each > 0 else 0.0 for each in records.times_ms]
        )


class MirrorCounts:
    """Counts that only the mirror's thread changes; a scrape reads them without a lock."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounts] = {}
        self.skipped: dict[tuple[str, str], int] = {}
        self.lags: dict[TopicAndPartition, int] = {}
        self.uncopied: dict[TopicAndPartition, UncopiedSince] = {}
        """During a restart, of the partitions before it."""
        self.stalled: frozenset[TopicAndPartition] = frozenset()
        self.errors: dict[str, int] = {}
        self.restarts = 0

    def problems(self) -> list[str]:
        """Return why the mirror is not ready."""
        return [
            f"{topic}-{partition} has made no progress for a minute"
            for topic, partition in sorted(self.stalled)
        ]

    def of_topic(self, topic: str) -> TopicCounts:
        """Return the counts of a topic."""
        return self.topics.setdefault(topic, TopicCounts())

    def uncopied_of(self, tp: TopicAndPartition) -> UncopiedSince:
        """Return the state of a partition; its times are of a monotonic clock."""
        return self.uncopied.setdefault(tp, UncopiedSince())

    def record_skipped(self, topic: str, reason: str) -> None:
        """Count a record that is not copied."""
        key = topic, reason
        self.skipped[key] = self.skipped.get(key, 0) + 1

    def record_error(self, reason: str) -> None:
        """Count an error: the name of a client's error, or one of the mirror's own."""
        self.errors[reason] = self.errors.get(reason, 0) + 1


class MirrorCollector:
    """Collects every metric of `METRICS`."""

    def __init__(self, counts: MirrorCounts, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` is the clock by which `counts.uncopied` is updated."""
        self._counts = counts
        self._now_s = now_s

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current values."""
        counts = self._counts
        topics = counts.topics.copy()
        yield _numbers("records_total", {(name,): each.records for name, each in topics.items()})
        yield _numbers("bytes_total", {(name,): each.bytes for name, each in topics.items()})
        yield _numbers("skipped_total", counts.skipped.copy())
        yield _numbers("records_lost_total", {(name,): each.lost for name, each in topics.items()})
        for name, numbers in (
            ("unreadable_batches_total", {(t,): n.unreadable_batches for t, n in topics.items()}),
            ("unreadable_offsets_total", {(t,): n.unreadable_offsets for t, n in topics.items()}),
        ):
            yield _numbers(name, numbers)
        stalled = [topic for topic, _ in counts.stalled]
        yield _numbers("stalled_partitions", {(name,): stalled.count(name) for name in topics})
        records = counts.lags.copy().items()
        yield _numbers("lag_records", {(t, str(number)): lag for (t, number), lag in records})
        yield _numbers("lag_seconds", self._lag_seconds(topics))
        yield self._delays(topics)
        yield _numbers("errors_total", {(name,): n for name, n in counts.errors.copy().items()})
        yield _numbers("restarts_total", {(): counts.restarts})

    def _lag_seconds(self, topics: Iterable[str]) -> Mapping[tuple[str], float]:
        lags = dict.fromkeys(((topic,) for topic in topics), 0.0)
        now_s = self._now_s()
        for (topic, _), each in self._counts.uncopied.copy().items():
            if each.since_s is not None:
                lags[topic,] = max(lags.get((topic,), 0.0), now_s - each.since_s)
        return lags

    def _delays(self, topics: Mapping[str, TopicCounts]) -> Metric:
        _, text, labels = METRICS["delay_seconds"]
        family = HistogramMetricFamily(PREFIX + "delay_seconds", text, labels=labels)
        for topic, each in topics.items():
            each.delays.add_to(family, (topic,))
        return family


def serve_metrics(counts: MirrorCounts, host: str, port: int, access: MetricsAccess) -> None:
    """Serve the metrics of a mirror, and memory, descriptors and CPU time of its process.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(MirrorCollector(counts))
    ProcessCollector(registry=registry)
    try:
        metrics_http.serve_metrics(registry, host, port, access, counts.problems)
    except OSError as error:
        raise ConfigurationError(f"metrics cannot listen on {host}:{port}: {error}") from error


def _numbers(name: str, values: Mapping[Any, float]) -> Metric:
    """Return the counter or gauge of this name; `values` are by their labels."""
    kind, text, labels = METRICS[name]
    family_class = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = family_class(PREFIX + name, text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family
