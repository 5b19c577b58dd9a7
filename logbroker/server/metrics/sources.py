"""The parts of a broker that metrics read, without Prometheus' client, which few brokers load."""

from dataclasses import dataclass

from logbroker.config import BrokerConfig
from logbroker.quotas.meters import ThrottleCounts
from logbroker.registry.registry import Registry
from logbroker.server.group_commit import GroupCommit
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.server.listener import Listener
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partitions
from logbroker.server.produce import ProduceHandler
from logbroker.storage.log_directory import LogDirectory


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The parts of a broker that a scrape reads; all of them are safe on any thread."""

    config: BrokerConfig
    counters: Counters
    partitions: Partitions
    coordinator: GroupCoordinator
    registry: Registry
    logs: LogDirectory
    produce: ProduceHandler
    commit: GroupCommit
    listener: Listener
    throttled: ThrottleCounts
