"""Converts the counters and the state of a broker into Prometheus metrics at each scrape."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric

from logbroker import metrics_http
from logbroker.errors import ConfigurationError
from logbroker.groups.states import GroupState
from logbroker.metrics_http import MetricsAccess
from logbroker.quotas.entities import QuotaKey
from logbroker.registry.cluster import ClusterView
from logbroker.server.metrics.families import FAMILIES, histogram, numbers
from logbroker.server.metrics.sources import MetricSources
from logbroker.server.partition import Partition, Partitions
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import name_of

SINGLE_COUNTS: Final = tuple(
    name
    for name, family in FAMILIES.items()
    if family.kind == "counter" and not family.labels and name != "flushes_total"
)
"""Counters that are a field of `Counters` each."""

TRAFFIC: Final = ("bytes_in", "messages_in", "bytes_out", "messages_out")
LOG_GAUGES: Final = ("log_start_offset", "log_end_offset", "high_watermark", "log_size_bytes")
TOPIC_GAUGES: Final = (
    *("topic_partitions", "topic_size_bytes", "topic_messages", "topic_unflushed_messages"),
)

LogRow = tuple[int, ...]
"""Log start offset, log end offset, high watermark and size in bytes of a partition."""


def serve_metrics(sources: MetricSources, host: str, port: int, access: MetricsAccess) -> None:
    """Serve the broker's metrics, and memory, descriptors and CPU time of its process.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(BrokerCollector(sources))
    ProcessCollector(registry=registry)
    try:
        metrics_http.serve_metrics(registry, host, port, access)
    except OSError as error:
        raise ConfigurationError(f"metrics cannot listen on {host}:{port}: {error}") from error


class BrokerCollector:
    """Collects every metric of `FAMILIES`, without a lock, while the loop's thread runs."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._offline: tuple[ClusterView, int] | None = None
        """The last view whose offline partitions were counted, and their number."""

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, grouped by source."""
        yield from self._request_metrics()
        yield from self._single_counts()
        yield from self._flush_metrics()
        for name, value in self._gauges().items():
            gauge = numbers(name)
            gauge.add_metric((), value)
            yield gauge
        yield self._disk_metric()
        yield from self._group_metrics()
        yield from self._quota_metrics()
        yield from _traffic_metrics(self._sources.partitions)
        served = self._sources.partitions.all()
        rows = [_log_row(partition) for partition in served]
        yield from _topic_metrics(served, rows)
        if len(served) > self._sources.config.metrics_partitions_max:
            served, rows = [], []
        yield from _partition_metrics(served, rows)

    def _request_metrics(self) -> Iterator[Metric]:
        counters = self._sources.counters
        requests, errors = numbers("requests_total"), numbers("request_errors_total")
        seconds = histogram("request_seconds")
        for api_key, count in counters.requests.items():
            requests.add_metric((_api_name(api_key),), count)
        for (api_key, code), count in sorted(counters.errors.copy().items()):
            errors.add_metric((_api_name(api_key), name_of(code)), count)
        for api_key, observed in counters.request_seconds.items():
            if observed.count:
                observed.add_to(seconds, (_api_name(api_key),))
        yield from (requests, errors, seconds)

    def _single_counts(self) -> Iterator[Metric]:
        for name in SINGLE_COUNTS:
            family = numbers(name)
            family.add_metric((), getattr(self._sources.counters, name.removesuffix("_total")))
            yield family

    def _flush_metrics(self) -> Iterator[Metric]:
        observed = self._sources.counters.flush_seconds
        count, seconds = numbers("flushes_total"), histogram("flush_seconds")
        count.add_metric((), observed.count)
        observed.add_to(seconds)
        yield from (count, seconds)

    def _gauges(self) -> dict[str, float]:
        sources, view = self._sources, self._sources.partitions.view
        recovery = sources.logs.recovery
        return {
            "partitions_write_failed": sources.produce.partitions_write_failed,
            "partitions_flush_failed": sources.commit.partitions_flush_failed,
            "partitions_open_failed": sources.partitions.open_failed,
            "partitions_offline": self._count_offline(view),
            "partitions_led": len(sources.partitions),
            "topics_unreadable": len(view.unreadable),
            "registered": sources.config.broker_id in view.brokers,
            "registry_available": sources.registry.may_coordinate(),
            "brokers_alive": len(view.brokers),
            "connections": len(sources.listener),
            "connections_muted": sources.counters.connections_muted,
            "recovery_seconds": recovery.seconds,
            "recovered_logs": recovery.logs,
            "recovery_dropped_bytes": recovery.dropped_bytes,
        }

    def _count_offline(self, view: ClusterView) -> int:
        if self._offline is None or self._offline[0] is not view:
            self._offline = view, view.count_leaderless()
        return self._offline[1]

    def _disk_metric(self) -> Metric:
        """Return the free disk space; without a value if the system does not report it."""
        family = numbers("disk_free_bytes")
        try:
            disk = os.statvfs(self._sources.config.data_dir)
        except OSError:
            return family
        family.add_metric((), disk.f_bavail * disk.f_frsize)
        return family

    def _quota_metrics(self) -> Iterator[Metric]:
        counts = self._sources.throttled
        requests, seconds = numbers("throttled_requests_total"), numbers("throttle_seconds_total")
        for key in QuotaKey:
            requests.add_metric((key,), counts.requests[key])
            seconds.add_metric((key,), counts.seconds[key])
        yield from (requests, seconds)

    def _group_metrics(self) -> Iterator[Metric]:
        sizes = self._sources.coordinator.group_sizes()
        counts = Counter(state for state, _ in sizes)
        groups, members = numbers("groups"), numbers("group_members")
        for state in GroupState:
            if state is not GroupState.DEAD:
                groups.add_metric((state,), counts[state])
        members.add_metric((), sum(size for _, size in sizes))
        yield from (groups, members)


def _api_name(api_key: int) -> str:
    """Return the name of an API in Kafka's documentation, such as `ListOffsets`."""
    return "".join(word.title() for word in ApiKey(api_key).name.split("_"))


def _traffic_metrics(partitions: Partitions) -> Iterator[Metric]:
    topics = partitions.traffic()
    for name in TRAFFIC:
        family = numbers(f"{name}_total")
        for traffic in topics:
            family.add_metric((traffic.topic,), getattr(traffic, name))
        yield family


def _log_row(partition: Partition) -> LogRow:
    log = partition.log
    # Read in this order, no difference of two values is negative while the loop's thread runs.
    start, high_watermark = log.log_start_offset, log.high_watermark
    return start, log.log_end_offset, high_watermark, log.size_bytes


def _topic_metrics(served: Sequence[Partition], rows: Sequence[LogRow]) -> Iterator[Metric]:
    sums: dict[str, list[int]] = {}
    for partition, (start, end, high_watermark, size_bytes) in zip(served, rows, strict=True):
        of_topic = sums.setdefault(partition.topic.name, [0, 0, 0, 0])
        of_topic[0] += 1
        of_topic[1] += size_bytes
        of_topic[2] += end - start
        of_topic[3] += end - high_watermark
    for position, name in enumerate(TOPIC_GAUGES):
        family = numbers(name)
        for topic, values in sums.items():
            family.add_metric((topic,), values[position])
        yield family


def _partition_metrics(served: Sequence[Partition], rows: Sequence[LogRow]) -> Iterator[Metric]:
    labels = [(each.topic.name, str(each.log.partition)) for each in served]
    for position, name in enumerate(LOG_GAUGES):
        family = numbers(name)
        for topic_and_partition, row in zip(labels, rows, strict=True):
            family.add_metric(topic_and_partition, row[position])
        yield family
