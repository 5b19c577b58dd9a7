"""A partition as the server sees it: its log, its flush, and who waits for either."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logbroker.errors import (
    NotLeaderOrFollower,
    RequestRefused,
    StorageFailed,
    UnknownTopicOrPartition,
)
from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic
from logbroker.server.loop import Timer
from logbroker.server.metrics.counters import TopicTraffic
from logbroker.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from logbroker.server.fetch import WaitingFetch
    from logbroker.server.produce_run import ProduceRun


class Partition:
    """One log that this broker leads.

    `is_open` goes false for good when it leads it no longer, or when the topic is deleted;
    whoever kept the object looks the name up again. `flush_waiters` are (offset, run) in the
    order of their offsets.
    """

    __slots__ = (
        "fetch_waiters",
        "flush_timer",
        "flush_waiters",
        "is_flushing",
        "is_open",
        "log",
        "topic",
        "traffic",
    )

    def __init__(self, topic: Topic, log: PartitionLog, traffic: TopicTraffic) -> None:
        self.topic = topic
        self.log = log
        self.traffic = traffic
        self.is_open = True
        self.is_flushing = False
        self.flush_timer: Timer | None = None
        self.flush_waiters: deque[tuple[int, ProduceRun]] = deque()
        self.fetch_waiters: set[WaitingFetch] = set()

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.log.partition}"


class Partitions:
    """Every partition that this broker leads, and why it does not serve another one.

    `view` is the cluster as it was followed last, on the loop's thread; other threads may read it.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._unusable: dict[tuple[str, int], StorageFailed] = {}
        self._traffic: dict[str, TopicTraffic] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def unusable(self) -> int:
        """How many partitions are led here and cannot be opened; any thread may ask."""
        return len(self._unusable)

    def all(self) -> list[Partition]:
        """Every partition that is served; any thread may ask."""
        return list(self._by_name.values())

    def traffic(self) -> list[TopicTraffic]:
        """What went in and out of each topic that was served here; any thread may ask."""
        return list(self._traffic.values())

    def traffic_of(self, topic: str) -> TopicTraffic:
        """What is counted of a topic, from now on where it is new."""
        return self._traffic.setdefault(topic, TopicTraffic(topic))

    def forget_traffic(self, topic: str) -> None:
        """The topic is gone: one of its name would be another."""
        self._traffic.pop(topic, None)

    def add(self, partition: Partition) -> None:
        """Serve one more partition."""
        place = partition.topic.name, partition.log.partition
        self._by_name[place] = partition
        self._unusable.pop(place, None)

    def add_unusable(self, topic: Topic, number: int, failure: StorageFailed) -> None:
        """Refuse what is asked of a partition that this broker leads and cannot open."""
        self._unusable[topic.name, number] = failure

    def find(self, topic: str, number: int) -> Partition | None:
        """The partition of this name, if this broker serves it."""
        return self._by_name.get((topic, number))

    def get(self, topic: str, number: int) -> Partition:
        """The partition of this name.

        Raises:
            UnknownTopicOrPartition: there is none.
            NotLeaderOrFollower: this broker does not lead it.
            StorageFailed: its folder cannot be opened.
        """
        try:
            return self._by_name[topic, number]
        except KeyError:
            raise self._why_not_served(topic, number) from None

    def failure_of(self, topic: Topic) -> StorageFailed | None:
        """Why one of the topic's partitions that this broker leads cannot be opened."""
        failures = (self._unusable.get((topic.name, n)) for n in range(topic.partitions))
        return next((failure for failure in failures if failure is not None), None)

    def remove(self, topic: str, number: int) -> Partition | None:
        """Serve a partition no more, if it is served: it is closed."""
        self._unusable.pop((topic, number), None)
        partition = self._by_name.pop((topic, number), None)
        if partition is not None:
            partition.is_open = False
        return partition

    def _why_not_served(self, name: str, number: int) -> RequestRefused:
        topic = self.view.topics.get(name)
        if topic is None or not 0 <= number < topic.partitions:
            return UnknownTopicOrPartition(f"there is no partition {name}-{number}")
        failure = self._unusable.get((name, number))
        if failure is not None:
            return StorageFailed(*failure.args)
        leader = self.view.leader(topic, number)
        whose = "nobody leads it now" if leader is None else f"broker {leader} leads it"
        return NotLeaderOrFollower(f"{name}-{number} is not served here: {whose}")
