"""Offsets and consumer groups in the answers of Kafka's admin client, for commands and service."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupState, KafkaError, TopicPartition
from confluent_kafka.admin import (
    ClusterMetadata,
    ConsumerGroupDescription,
    ListOffsetsResultInfo,
    MemberDescription,
    OffsetSpec,
)

TopicAndPartition = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST: Final = OffsetSpec.earliest()
"""The log start offset."""

LATEST: Final = OffsetSpec.latest()
"""The end of what can be read."""

NEWEST: Final = OffsetSpec.max_timestamp()
"""The record with the latest time, which need not be the last; unsupported before Kafka 3.0."""

_NO_RECORD: Final = -1

# The names in Kafka's protocol and in its own tools.
GROUP_STATES: Final[Mapping[object, str]] = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}

DEAD: Final = "Dead"
"""The state of an unknown group."""


def since(timestamp_ms: int) -> OffsetSpec:
    """Return the spec of the first record with this time or a later one."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp_ms)
    return spec


class LogPosition(NamedTuple):
    """An offset, and the time of its record if a record was looked up; -1 without a record."""

    offset: int
    timestamp_ms: int

    @property
    def has_record(self) -> bool:
        """Whether there is such a record."""
        return self.offset > _NO_RECORD


def log_position(info: ListOffsetsResultInfo) -> LogPosition | None:
    """Return the position of an answer; None if the leader did not answer.

    If one of several leaders does not answer, librdkafka reports no error, only an invalid offset.
    """
    return LogPosition(info.offset, info.timestamp) if info.offset >= _NO_RECORD else None


def leaders_of(metadata: ClusterMetadata) -> dict[TopicAndPartition, int | None]:
    """Return every partition with the id of its leader."""
    return {
        (name, number): partition.leader if partition.leader >= 0 else None
        for name, topic in metadata.topics.items()
        for number, partition in topic.partitions.items()
    }


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and its partitions in order."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicAndPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it; `coordinator` is that broker's id."""

    group: str
    state: str
    assignor: str
    coordinator: int | None
    members: list[GroupMember]

    @property
    def owners(self) -> dict[TopicAndPartition, str]:
        """The member id of each assigned partition."""
        return {tp: each.member_id for each in self.members for tp in each.partitions}


def describe_group_answer(found: ConsumerGroupDescription) -> GroupDescription:
    """Return a group from the client's answer, its members by id."""
    return GroupDescription(
        group=found.group_id,
        state=GROUP_STATES[found.state],
        assignor=found.partition_assignor or "",
        coordinator=None if found.coordinator is None else found.coordinator.id,
        members=sorted(map(_member, found.members), key=lambda each: each.member_id),
    )


class CommittedOffsets(NamedTuple):
    """The committed offsets of a group, and the partitions whose offset is unknown."""

    offsets: dict[TopicAndPartition, int]
    errors: dict[TopicAndPartition, KafkaError]


def committed_offsets(answer: Iterable[TopicPartition] | None) -> CommittedOffsets:
    """Return the committed offsets of the client's answer."""
    offsets: dict[TopicAndPartition, int] = {}
    errors: dict[TopicAndPartition, KafkaError] = {}
    for each in answer or ():
        if each.error is not None:
            errors[each.topic, each.partition] = each.error
        elif each.offset >= 0:  # negative: none is committed
            offsets[each.topic, each.partition] = each.offset
    return CommittedOffsets(offsets, errors)


def consumer_lag(committed: int | None, end: int | None) -> int | None:
    """Return the number of offsets from a committed one to the log end; None if one is unknown.

    A recreated topic may end below an offset that was committed in its predecessor.
    """
    return None if committed is None or end is None else max(0, end - committed)


def _member(found: MemberDescription) -> GroupMember:
    return GroupMember(
        member_id=found.member_id,
        instance_id=found.group_instance_id,
        client_id=found.client_id,
        host=found.host,
        partitions=sorted(
            (each.topic, each.partition) for each in found.assignment.topic_partitions
        ),
    )
