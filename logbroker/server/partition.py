"""The partitions that this broker leads, and why it rejects requests for others."""

from collections.abc import Iterator
from typing import Final

from logbroker.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    RequestRefused,
    StorageFailed,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic
from logbroker.server.loop import Timer
from logbroker.server.metrics.counters import TopicTraffic
from logbroker.storage.partition_log import PartitionLog

NO_LEADER_EPOCH: Final = -1
"""The epoch of a client that knows none, or whose version has no such field."""


ANNOUNCED_LEADER_EPOCH: Final = 0
"""The leader epoch in Metadata responses: the leader of a partition never changes."""


class Partition:
    """A log that this broker leads.

    `is_open` becomes false for good when the leadership ends or the topic is deleted. A caller
    that cached the object must then look it up again.
    """

    __slots__ = ("flush_timer", "is_flushing", "is_open", "log", "topic", "traffic")

    def __init__(self, topic: Topic, log: PartitionLog, traffic: TopicTraffic) -> None:
        self.topic = topic
        self.log = log
        self.traffic = traffic
        self.is_open = True
        self.is_flushing = False
        self.flush_timer: Timer | None = None

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.log.partition}"

    def check_leader_epoch(self, client_epoch: int | None) -> None:
        """Accept a client that knows the leader epoch of Metadata responses, or none (KIP-320).

        The epochs of the log are not compared: a log that was copied from Kafka has its own.

        Raises:
            FencedLeaderEpoch: the client's epoch is older.
            UnknownLeaderEpoch: the client's epoch is newer.
        """
        epoch = ANNOUNCED_LEADER_EPOCH
        if client_epoch is None or client_epoch in (NO_LEADER_EPOCH, epoch):
            return
        error = FencedLeaderEpoch if client_epoch < epoch else UnknownLeaderEpoch
        raise error(f"{self} has leader epoch {epoch}; the request has {client_epoch}")


class Partitions:
    """All partitions that this broker leads.

    `view` is the cluster view applied last; the loop's thread sets it and any thread reads it.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._failed: dict[tuple[str, int], StorageFailed] = {}
        self._traffic: dict[str, TopicTraffic] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def open_failed(self) -> int:
        """The number of led partitions whose log cannot be opened; safe on any thread."""
        return len(self._failed)

    @property
    def failed(self) -> list[tuple[str, int]]:
        """The led partitions whose log cannot be opened, or rejects appends since it failed."""
        rejecting = [key for key, each in self._by_name.items() if each.log.failure is not None]
        return [*self._failed, *rejecting]

    def all(self) -> list[Partition]:
        """Return all open partitions; safe on any thread."""
        return list(self._by_name.values())

    def traffic(self) -> list[TopicTraffic]:
        """Return the traffic of each topic; safe on any thread."""
        return list(self._traffic.values())

    def traffic_of(self, topic: str) -> TopicTraffic:
        """Return the traffic of a topic, created if new."""
        return self._traffic.setdefault(topic, TopicTraffic(topic))

    def remove_traffic(self, topic: str) -> None:
        """Remove the traffic of a deleted topic."""
        self._traffic.pop(topic, None)

    def add(self, partition: Partition) -> None:
        """Add a partition whose log is open."""
        key = partition.topic.name, partition.log.partition
        self._by_name[key] = partition
        self._failed.pop(key, None)

    def add_failed(self, topic: Topic, number: int, failure: StorageFailed) -> None:
        """Reject requests for a partition whose log cannot be opened."""
        self._failed[topic.name, number] = failure

    def is_offline(self, topic: str, number: int) -> bool:
        """Return whether this broker leads the partition, but its log cannot be opened."""
        return (topic, number) in self._failed

    def find(self, topic: str, number: int) -> Partition | None:
        """Return the partition if this broker serves it."""
        return self._by_name.get((topic, number))

    def get(self, topic: str, number: int) -> Partition:
        """Return the partition.

        Raises:
            UnknownTopicOrPartition: it does not exist.
            NotLeaderOrFollower: this broker does not lead it.
            StorageFailed: its log cannot be opened.
        """
        try:
            return self._by_name[topic, number]
        except KeyError:
            raise self._rejection(topic, number) from None

    def failure_of(self, topic: Topic) -> StorageFailed | None:
        """Return why one of the topic's logs on this broker cannot be opened, if so."""
        failures = (self._failed.get((topic.name, n)) for n in range(topic.partitions))
        return next((failure for failure in failures if failure is not None), None)

    def remove(self, topic: str, number: int) -> Partition | None:
        """Remove and close the partition, if this broker serves it."""
        self._failed.pop((topic, number), None)
        partition = self._by_name.pop((topic, number), None)
        if partition is not None:
            partition.is_open = False
        return partition

    def _rejection(self, name: str, number: int) -> RequestRefused:
        topic = self.view.topics.get(name)
        if topic is None or not 0 <= number < topic.partitions:
            return UnknownTopicOrPartition(f"partition {name}-{number} does not exist")
        failure = self._failed.get((name, number))
        if failure is not None:
            return StorageFailed(*failure.args)
        leader = self.view.leader(topic, number)
        reason = "it has no leader" if leader is None else f"its leader is broker {leader}"
        return NotLeaderOrFollower(f"{name}-{number} is not served by this broker: {reason}")
