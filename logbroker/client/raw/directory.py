"""What a Metadata answer tells of topics and of who leads their partitions."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from logbroker.client.raw.refusals import UNKNOWN_TOPIC_OR_PARTITION
from logbroker.client.raw.settings import Address

_NO_ID: Final = UUID(int=0)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicPlan(NamedTuple):
    """A topic; brokers before Kafka 2.8 give it no id. `partitions` are sorted."""

    topic: str
    topic_id: UUID | None
    partitions: tuple[int, ...]
    is_internal: bool


class Leader(NamedTuple):
    """Who leads a partition, and in which epoch (-1 where brokers tell none)."""

    address: Address
    epoch: int


class TopicView(NamedTuple):
    """What a broker says of one topic; `leaders` lacks partitions that have none at present."""

    plan: TopicPlan
    error_code: int
    leaders: Mapping[int, Leader]


class ClusterView(NamedTuple):
    """What a broker says of its cluster."""

    brokers: tuple[Address, ...]
    topics: Mapping[str, TopicView]

    @property
    def unknown(self) -> set[str]:
        """The topics that it does not know; some were asked for, or are just being deleted."""
        return {
            topic
            for topic, view in self.topics.items()
            if view.error_code == UNKNOWN_TOPIC_OR_PARTITION
        }


def read_metadata(answer: Any) -> ClusterView:
    """The view in an answer of kafka-python's."""
    brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
    topics = {each.name: _read_topic(each, brokers) for each in answer.topics}
    return ClusterView(tuple(brokers.values()), topics)


def _read_topic(topic: Any, brokers: Mapping[int, Address]) -> TopicView:
    # Fields that the version lacks are None, or what they mean when nobody tells.
    topic_id = topic.topic_id if topic.topic_id != _NO_ID else None
    numbers = tuple(sorted(each.partition_index for each in topic.partitions))
    leaders = {
        each.partition_index: Leader(brokers[each.leader_id], each.leader_epoch)
        for each in topic.partitions
        if each.leader_id in brokers
    }
    plan = TopicPlan(topic.name, topic_id, numbers, bool(topic.is_internal))
    return TopicView(plan, topic.error_code, leaders)
