"""A consumer group member that sends single requests without a client library."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from kafka.protocol.admin.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from tests.support.kafka.raw_connection import RawConnection
from tests.support.processes.waiting import until

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH = 7, 5, 4, 3, 8, 7
"""The versions of requests unless a test names one."""

NONE = 0
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
UNKNOWN_TOPIC_OR_PARTITION = 3
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_REQUEST = 42
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86

RANGE = (("range", b"\0\0\0\0\0\1\0\6events\xff\xff\xff\xff"),)
"""A subscription to `events`."""

SESSION_TIMEOUT_MS = 60_000


class RawMember:
    """One connection and its member's state. A context manager."""

    def __init__(
        self, bootstrap_servers: str, group: str = "group", instance_id: str | None = None
    ) -> None:
        self.connection = RawConnection(bootstrap_servers)
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.socket.close()

    def send_join(self, version: int = JOIN, **fields: Any) -> None:
        """Send a JoinGroup request without waiting."""
        protocols = fields.pop("protocols", RANGE)
        request = JoinGroupRequest(
            group_id=fields.pop("group", self.group),
            session_timeout_ms=fields.pop("session_timeout_ms", SESSION_TIMEOUT_MS),
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", SESSION_TIMEOUT_MS),
            member_id=fields.pop("member_id", self.member_id),
            group_instance_id=fields.pop("instance_id", self.instance_id),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        assert not fields, fields
        self.connection.send(request, version)

    def joined(self, version: int = JOIN) -> Any:
        """Return the next JoinGroup response and update the member's state from it."""
        _, answer = self.connection.receive(JoinGroupResponse, version)
        if answer.error_code in (NONE, MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error_code == NONE:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = JOIN, **fields: Any) -> Any:
        """Join, in two steps if the broker requires it, and return the response."""
        self.send_join(version, **fields)
        answer = self.joined(version)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.send_join(version, **fields)
            answer = self.joined(version)
        return answer

    def send_sync(
        self, assignments: Mapping[str, bytes] | None = None, version: int = SYNC, **fields: Any
    ) -> None:
        request = SyncGroupRequest(
            group_id=fields.pop("group", self.group),
            generation_id=fields.pop("generation", self.generation),
            member_id=fields.pop("member_id", self.member_id),
            group_instance_id=self.instance_id,
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocol_name=fields.pop("protocol", "range"),
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=bytes_)
                for member, bytes_ in (assignments or {}).items()
            ],
        )
        assert not fields, fields
        self.connection.send(request, version)

    def synced(self, version: int = SYNC) -> Any:
        return self.connection.receive(SyncGroupResponse, version)[1]

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, version: int = SYNC, **fields: Any
    ) -> Any:
        self.send_sync(assignments, version, **fields)
        return self.synced(version)

    def heartbeat(self, version: int = HEARTBEAT, **fields: Any) -> int:
        """Send a heartbeat and return the error code."""
        request = HeartbeatRequest(
            group_id=fields.pop("group", self.group),
            generation_id=fields.pop("generation", self.generation),
            member_id=fields.pop("member_id", self.member_id),
            group_instance_id=self.instance_id,
        )
        assert not fields, fields
        code: int = self.connection.ask(request, HeartbeatResponse, version).error_code
        return code

    def leave(self, version: int = LEAVE, **fields: Any) -> Any:
        member_id = fields.pop("member_id", self.member_id)
        request = LeaveGroupRequest(
            group_id=fields.pop("group", self.group),
            member_id=member_id,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id=member_id, group_instance_id=self.instance_id, reason=None
                )
            ],
        )
        assert not fields, fields
        return self.connection.ask(request, LeaveGroupResponse, version)

    def stable(self) -> Self:
        """Join as the only member and assign all partitions to it."""
        assert self.join().error_code == NONE
        assert self.sync({self.member_id: b"everything"}).error_code == NONE
        return self

    def send_commit(
        self, offsets: Mapping[tuple[str, int], int], version: int = COMMIT, **fields: Any
    ) -> None:
        """Send an OffsetCommit request without waiting."""
        metadata, epoch = fields.pop("metadata", ""), fields.pop("leader_epoch", -1)
        request = OffsetCommitRequest(
            group_id=fields.pop("group", self.group),
            generation_id_or_member_epoch=fields.pop("generation", self.generation),
            member_id=fields.pop("member_id", self.member_id),
            group_instance_id=self.instance_id,
            retention_time_ms=-1,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        assert not fields, fields
        self.connection.send(request, version)

    def committed_codes(self, version: int = COMMIT) -> dict[tuple[str, int], int]:
        """Return the error codes of the next OffsetCommit response by partition."""
        _, answer = self.connection.receive(OffsetCommitResponse, version)
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }

    def commit(
        self, offsets: Mapping[tuple[str, int], int], version: int = COMMIT, **fields: Any
    ) -> dict[tuple[str, int], int]:
        """Commit offsets and return the error codes by partition."""
        self.send_commit(offsets, version, **fields)
        return self.committed_codes(version)

    def fetch(
        self,
        topics: Mapping[str, Sequence[int]] | None,
        version: int = FETCH,
        group: str | None = None,
    ) -> Any:
        """Send an OffsetFetch request for one group. None requests all partitions."""
        wanted = None
        if topics is not None:
            wanted = [
                OffsetFetchRequest.OffsetFetchRequestTopic(
                    name=topic, partition_indexes=list(numbers)
                )
                for topic, numbers in topics.items()
            ]
        request = OffsetFetchRequest(
            group_id=self.group if group is None else group, topics=wanted, require_stable=True
        )
        return self.connection.ask(request, OffsetFetchResponse, version)

    def committed(self, topic: str, partition: int) -> int:
        """Return the committed offset of a partition, or -1."""
        return offsets_in(self.fetch({topic: [partition]}).topics)[topic, partition]


def until_groups_loaded(bootstrap_servers: str) -> None:
    """Wait until a broker, which may have just started, has loaded all groups it coordinates.

    Until then it answers COORDINATOR_LOAD_IN_PROGRESS, which clients try again.
    """
    with RawConnection(bootstrap_servers) as connection:
        until(
            lambda: connection.ask(ListGroupsRequest(), ListGroupsResponse, 0).error_code == NONE,
            "all groups are loaded",
        )


def offsets_in(topics: Iterable[Any]) -> dict[tuple[str, int], int]:
    """Return the offsets of an OffsetFetch response."""
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in topics
        for each in topic.partitions
    }
