"""Turns what a broker counts, and what it holds, into Prometheus metrics at each scrape."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from logbroker.groups.states import GroupState
from logbroker.registry.cluster import ClusterView
from logbroker.server.metrics.counters import Histogram
from logbroker.server.metrics.families import FAMILIES, histogram, numbers
from logbroker.server.metrics.logs import log_metrics
from logbroker.server.metrics.watched import Watched
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import name_of

SINGLE_COUNTS: Final = tuple(
    name
    for name, family in FAMILIES.items()
    if family.kind == "counter" and not family.labels and name != "flushes_total"
)
"""Counters that are a field of `Counters` each."""


class BrokerCollector:
    """Every metric of `FAMILIES`, read without a lock while the loop's thread goes on."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._counted: tuple[ClusterView, int] | None = None
        """The view whose partitions without a leader were counted last, and how many."""

    def collect(self) -> Iterator[Metric]:
        """Every metric, in the order of `FAMILIES` for each of its sources."""
        yield from self._request_metrics()
        yield from self._single_counts()
        yield from self._flush_metrics()
        for name, value in self._gauges().items():
            gauge = numbers(name)
            gauge.add_metric((), value)
            yield gauge
        yield self._disk_metric()
        yield from self._group_metrics()
        config = self._watched.config
        yield from log_metrics(self._watched.partitions, config.metrics_partitions_max)

    def _request_metrics(self) -> Iterator[Metric]:
        counters = self._watched.counters
        requests, errors = numbers("requests_total"), numbers("request_errors_total")
        seconds = histogram("request_seconds")
        for api_key, count in counters.requests.items():
            requests.add_metric((_api_name(api_key),), count)
        for (api_key, code), count in sorted(counters.errors.copy().items()):
            errors.add_metric((_api_name(api_key), name_of(code)), count)
        for api_key, observed in counters.request_seconds.items():
            if observed.count:
                _add(seconds, (_api_name(api_key),), observed)
        yield from (requests, errors, seconds)

    def _single_counts(self) -> Iterator[Metric]:
        for name in SINGLE_COUNTS:
            family = numbers(name)
            family.add_metric((), getattr(self._watched.counters, name.removesuffix("_total")))
            yield family

    def _flush_metrics(self) -> Iterator[Metric]:
        observed = self._watched.counters.flush_seconds
        count, seconds = numbers("flushes_total"), histogram("flush_seconds")
        count.add_metric((), observed.count)
        _add(seconds, (), observed)
        yield from (count, seconds)

    def _gauges(self) -> dict[str, float]:
        watched, view = self._watched, self._watched.partitions.view
        recovery = watched.logs.recovery
        return {
            "partitions_refusing": watched.produce.partitions_refusing,
            "partitions_failed": watched.commit.partitions_failed,
            "partitions_unusable": watched.partitions.unusable,
            "partitions_leaderless": self._leaderless(view),
            "partitions_led": len(watched.partitions),
            "topics_unreadable": len(view.unreadable),
            "registered": watched.config.broker_id in view.brokers,
            "registry_available": watched.registry.may_coordinate(),
            "brokers_alive": len(view.brokers),
            "connections": len(watched.listener),
            "recovery_seconds": recovery.seconds,
            "recovered_logs": recovery.logs,
            "recovery_dropped_bytes": recovery.dropped_bytes,
        }

    def _leaderless(self, view: ClusterView) -> int:
        if self._counted is None or self._counted[0] is not view:
            self._counted = view, view.count_leaderless()
        return self._counted[1]

    def _disk_metric(self) -> Metric:
        """Without a value where the system does not say."""
        family = numbers("disk_free_bytes")
        try:
            disk = os.statvfs(self._watched.config.data_dir)
        except OSError:
            return family
        family.add_metric((), disk.f_bavail * disk.f_frsize)
        return family

    def _group_metrics(self) -> Iterator[Metric]:
        sizes = self._watched.coordinator.group_sizes()
        counts = Counter(state for state, _ in sizes)
        groups, members = numbers("groups"), numbers("group_members")
        for state in GroupState:
            if state is not GroupState.DEAD:
                groups.add_metric((state,), counts[state])
        members.add_metric((), sum(size for _, size in sizes))
        yield from (groups, members)


def _api_name(api_key: int) -> str:
    """As Kafka's documents write it, like `ListOffsets`."""
    return "".join(word.title() for word in ApiKey(api_key).name.split("_"))


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], observed: Histogram) -> None:
    family.add_metric(labels, list(observed.buckets()), observed.sum_s)
