"""What a broker counts, and how Prometheus reads it.

The loop's thread adds to plain integers; a scrape, on a thread of its own, reads them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from logbroker.groups.states import GroupState
from logbroker.server.partition import Partitions


@dataclass(slots=True)
class Counters:
    """Counts since the process started."""

    requests: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    flushes: int = 0
    flush_failures: int = 0
    write_failures: int = 0
    connections_opened: int = 0
    connections_refused: int = 0
    connections_broken: int = 0
    group_rebalances: int = 0


HELP: Final = {
    "requests": "Requests of any kind.",
    "produce_requests": "Produce requests.",
    "fetch_requests": "Fetch requests.",
    "messages_in": "Records appended.",
    "bytes_in": "Bytes of record batches received.",
    "bytes_out": "Bytes of record batches that Fetch answers hold.",
    "flushes": "Flushes of a log.",
    "flush_failures": "Flushes that the disk refused; such a log takes no appends until restart.",
    "write_failures": "Appends that the disk refused.",
    "connections_opened": "Connections accepted.",
    "connections_refused": "Connections over the limit, closed at once.",
    "connections_broken": "Connections closed because of a malformed or oversized request.",
    "group_rebalances": "New generations of consumer groups.",
}


class BrokerCollector:
    """Turns counters and the partitions' state into Prometheus metrics at each scrape."""

    def __init__(
        self,
        counters: Counters,
        partitions: Partitions,
        broker_id: int,
        groups_by_state: Callable[[], Mapping[GroupState, int]],
    ) -> None:
        self._counters = counters
        self._partitions = partitions
        self._broker_id = broker_id
        self._groups_by_state = groups_by_state

    def collect(self) -> Iterator[Metric]:
        """Every metric, prefixed `logbroker_`."""
        for field in fields(self._counters):
            name = f"logbroker_{field.name}"
            yield CounterMetricFamily(
                name, HELP[field.name], value=getattr(self._counters, field.name)
            )
        yield from self._cluster_metrics()
        yield self._group_metrics()
        yield from self._log_metrics()

    def _cluster_metrics(self) -> Iterator[Metric]:
        view = self._partitions.view
        gauges = {
            "registered": (
                "1 while the cluster knows this broker.",
                self._broker_id in view.brokers,
            ),
            "brokers_alive": ("Brokers that are registered.", len(view.brokers)),
            "partitions_led": ("Partitions that this broker serves.", len(self._partitions)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"logbroker_{name}", text, value=value)

    def _group_metrics(self) -> Metric:
        family = GaugeMetricFamily(
            "logbroker_groups", "Consumer groups that this broker coordinates.", labels=("state",)
        )
        counts = self._groups_by_state()
        for state in GroupState:
            if state is not GroupState.DEAD:
                family.add_metric((state,), counts.get(state, 0))
        return family

    def _log_metrics(self) -> Iterator[Metric]:
        labels = ("topic", "partition")
        gauges = {
            "log_start_offset": "First offset that can be read.",
            "log_end_offset": "Offset of the next record.",
            "high_watermark": "First offset that is not flushed yet.",
            "size_bytes": "Bytes of the log's segments.",
        }
        families = {
            name: GaugeMetricFamily(f"logbroker_{name}", text, labels=labels)
            for name, text in gauges.items()
        }
        for partition in list(self._partitions):
            for name, family in families.items():
                where = (partition.topic.name, str(partition.log.partition))
                family.add_metric(where, getattr(partition.log, name))
        yield from families.values()
