"""Describes a consumer group by its coordinator, the logs and ZooKeeper."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from logbroker.cli.group_admin import GroupAdmin
from logbroker.client.admin import (
    DEAD,
    LATEST,
    GroupMember,
    LogPosition,
    TopicAndPartition,
    consumer_lag,
)
from logbroker.groups.stored import PaperConsumer, PaperGroup


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group reads, or has committed an offset of; None is not known.

    `consumer_id` is who reads it: a member of the group, or a stream of one of the paper's
    consumers. `lag` is how many offsets lie between the committed one and the end of the log.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group; `state` and what follows up to `members` is the coordinator's.

    `consumers` are the paper's, registered in ZooKeeper; None where that was not asked.
    """

    group: str
    state: str
    assignor: str | None
    coordinator: int | None
    members: list[GroupMember]
    consumers: list[PaperConsumer] | None
    partitions: list[GroupPartition]


class _Reader(NamedTuple):
    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


_NO_READER: Final = _Reader()


def describe_group(
    admin: GroupAdmin, name: str, led: AbstractSet[TopicAndPartition], paper: PaperGroup | None
) -> GroupReport | None:
    """Return the description of one group; None if it is unknown.

    Log ends are looked up for the partitions `led`, which have a leader. The paper's consumers
    commit to ZooKeeper: an offset there overrides the coordinator's.
    """
    description = admin.describe(name)
    committed: Mapping[TopicAndPartition, int] = admin.committed(name)
    readers = {
        tp: _Reader(member.member_id, member.host, member.client_id)
        for member in description.members
        for tp in member.partitions
    }
    if paper is not None:
        readers |= {tp: _Reader(owner) for tp, owner in paper.owners.items()}
        committed = {**committed, **paper.offsets}
    topic_partitions = committed.keys() | readers.keys()
    consumers = None if paper is None else paper.consumers
    if description.state == DEAD and not topic_partitions and not consumers:
        return None
    (ends,) = admin.positions.find(topic_partitions & led, [LATEST])
    return GroupReport(
        group=name,
        state=description.state,
        assignor=description.assignor or None,
        coordinator=description.coordinator,
        members=description.members,
        consumers=consumers,
        partitions=[
            _partition(tp, committed.get(tp), ends.get(tp), readers.get(tp, _NO_READER))
            for tp in sorted(topic_partitions)
        ],
    )


def _partition(
    tp: TopicAndPartition, committed: int | None, end_position: LogPosition | None, reader: _Reader
) -> GroupPartition:
    topic, partition = tp
    end = None if end_position is None else end_position.offset
    return GroupPartition(
        topic=topic,
        partition=partition,
        committed_offset=committed,
        log_end_offset=end,
        lag=consumer_lag(committed, end),
        consumer_id=reader.consumer_id,
        host=reader.host,
        client_id=reader.client_id,
    )
