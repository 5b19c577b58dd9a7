"""What the threads of a consumer tell its coordinator."""

from concurrent.futures import Future
from dataclasses import dataclass

from logbroker.consumer.topic_partitions import Partitions
from logbroker.groups.stored import TopicPartition

Offsets = dict[TopicPartition, int]
"""How far a consumer is, or where its partitions end."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that was read in ZooKeeper may be so no more, or the connection has changed."""


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """The brokers tell of these partitions."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """A user wants offsets stored, what its thread was handed included."""

    thread_id: int
    answer: "Future[Offsets]"


@dataclass(frozen=True, slots=True)
class ReceiptsFull:
    """So much was counted for the audit that it should be published."""


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """The consumer is to give up everything and end."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Another thread of the consumer's has ended, which it cannot do without."""

    error: Exception


Event = Changed | PartitionsChanged | CommitAsked | ReceiptsFull | LeaveAsked | Failed
