"""Metadata and ListOffsets: topics, partition leaders and offsets.

Source: Kafka protocol guide, "Metadata API", "ListOffsets API"; KIP-79, KIP-207, KIP-320.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer.offsets import ListOffsetsRequest

from logbroker.client.raw.parsing.errors import UNKNOWN_TOPIC_OR_PARTITION
from logbroker.wire.fetch_client import READ_COMMITTED, READ_UNCOMMITTED

_NO_ID: Final = UUID(int=0)


class BrokerAddress(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicDescription(NamedTuple):
    """A topic; brokers before Kafka 2.8 return no id. `partitions` are sorted."""

    topic: str
    topic_id: UUID | None
    partitions: tuple[int, ...]
    is_internal: bool


class Leader(NamedTuple):
    """The leader of a partition, and its epoch (-1 if the broker does not return it)."""

    address: BrokerAddress
    epoch: int


class TopicMetadata(NamedTuple):
    """Metadata of one topic; `leaders` lacks partitions without a leader."""

    plan: TopicDescription
    error_code: int
    leaders: Mapping[int, Leader]


class ClusterMetadata(NamedTuple):
    """Metadata of a cluster, as returned by one broker."""

    brokers: tuple[BrokerAddress, ...]
    topics: Mapping[str, TopicMetadata]

    @property
    def unknown(self) -> set[str]:
        """The topics that the broker does not know."""
        return {
            topic
            for topic, view in self.topics.items()
            if view.error_code == UNKNOWN_TOPIC_OR_PARTITION
        }


def parse_metadata(answer: Any) -> ClusterMetadata:
    """Parse a Metadata response of kafka-python."""
    brokers = {each.node_id: BrokerAddress(each.host, each.port) for each in answer.brokers}
    topics = {each.name: _read_topic(each, brokers) for each in answer.topics}
    return ClusterMetadata(tuple(brokers.values()), topics)


def _read_topic(topic: Any, brokers: Mapping[int, BrokerAddress]) -> TopicMetadata:
    # Fields that the version lacks are None or have their default value.
    topic_id = topic.topic_id if topic.topic_id != _NO_ID else None
    numbers = tuple(sorted(each.partition_index for each in topic.partitions))
    leaders = {
        each.partition_index: Leader(brokers[each.leader_id], each.leader_epoch)
        for each in topic.partitions
        if each.leader_id in brokers
    }
    plan = TopicDescription(topic.name, topic_id, numbers, bool(topic.is_internal))
    return TopicMetadata(plan, topic.error_code, leaders)


EARLIEST: Final = -2
"""Instead of a time: the log start offset."""

LATEST: Final = -1
"""Instead of a time: the offset of the next record."""

_CONSUMER: Final = -1
_NOT_FOUND: Final = -1
_Topic: Final = ListOffsetsRequest.ListOffsetsTopic


class WantedOffset(NamedTuple):
    """A time in milliseconds since 1970, EARLIEST or LATEST, and the leader epoch (or -1)."""

    timestamp_ms: int
    leader_epoch: int


def make_list_offsets_request(
    wanted: Mapping[TopicPartition, WantedOffset], *, is_committed: bool
) -> Any:
    """Create kafka-python's request for partitions that one broker leads."""
    topics = [
        _Topic(
            name=topic,
            partitions=[
                _Topic.ListOffsetsPartition(
                    partition_index=tp.partition,
                    current_leader_epoch=wanted[tp].leader_epoch,
                    timestamp=wanted[tp].timestamp_ms,
                )
                for tp in topic_partitions
            ],
        )
        for topic, topic_partitions in groupby(sorted(wanted), lambda tp: tp.topic)
    ]
    level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=level, topics=topics)


def parse_list_offsets(answer: Any) -> Iterator[tuple[TopicPartition, int, int | None]]:
    """Yield partition, error code and offset; None if no record is that late."""
    for topic in answer.topics:
        for each in topic.partitions:
            offset = None if each.offset == _NOT_FOUND else each.offset
            yield TopicPartition(topic.name, each.partition_index), each.error_code, offset
