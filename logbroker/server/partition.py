"""A partition as the server sees it: its log, its flush, and who waits for either."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logbroker.errors import UnknownTopicOrPartition
from logbroker.registry.topic import Topic
from logbroker.server.loop import Timer
from logbroker.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from logbroker.server.fetch import WaitingFetch
    from logbroker.server.produce import ProduceRun


class Partition:
    """One log this broker leads.

    `is_open` goes false for good when the topic is deleted; whoever kept the object looks
    the name up again. `flush_waiters` are (offset, run) in the order of their offsets.
    """

    __slots__ = (
        "fetch_waiters",
        "flush_timer",
        "flush_waiters",
        "is_flushing",
        "is_open",
        "log",
        "topic",
    )

    def __init__(self, topic: Topic, log: PartitionLog) -> None:
        self.topic = topic
        self.log = log
        self.is_open = True
        self.is_flushing = False
        self.flush_timer: Timer | None = None
        self.flush_waiters: deque[tuple[int, ProduceRun]] = deque()
        self.fetch_waiters: set[WaitingFetch] = set()

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.log.partition}"


class Partitions:
    """Every partition of this broker, by topic name and number."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, partition: Partition) -> None:
        """Serve one more partition."""
        self._by_name[partition.topic.name, partition.log.partition] = partition

    def get(self, topic: str, number: int) -> Partition:
        """The partition of this name.

        Raises:
            UnknownTopicOrPartition: there is none.
        """
        try:
            return self._by_name[topic, number]
        except KeyError:
            raise UnknownTopicOrPartition(f"no partition {topic}-{number} here") from None

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of one topic, in order."""
        return [partition for partition in self._by_name.values() if partition.topic.name == topic]

    def remove_topic(self, topic: str) -> None:
        """Serve a topic no more: its partitions are closed."""
        for partition in self.of_topic(topic):
            partition.is_open = False
            del self._by_name[topic, partition.log.partition]
