"""Cheap requests of clients must not be expensive for the broker."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin.configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.stock_clients import ConfluentClient, sample_records
from tests.support.processes.waiting import until

TOPIC = 2
UNKNOWN_MEMBER_ID = 25
NAMED = 1_000
"""How often a request names the same: each time an answer with all of it would be too much."""

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_Group = OffsetFetchRequest.OffsetFetchRequestGroup
_GroupTopic = _Group.OffsetFetchRequestTopics


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    """To a broker that has the topic `events`."""
    with RawConnection(broker.bootstrap_servers) as connection:
        ask_metadata(connection, "events")
        yield connection


def ask_metadata(connection: RawConnection, *topics: str) -> Any:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    return connection.ask(request, MetadataResponse, 9)


def commit(connection: RawConnection, group: str, *, generation: int = -1, member: str = "") -> int:
    """Commit an offset of partition 0: the error code."""
    wanted = _Topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata="note"
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=None,
        topics=[_Topic(name="events", partitions=[wanted])],
    )
    answer = connection.ask(request, OffsetCommitResponse, 8)
    return int(answer.topics[0].partitions[0].error_code)


def groups_at(connection: RawConnection) -> list[str]:
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    return [group.group_id for group in connection.ask(request, ListGroupsResponse, 4).groups]


def test_a_rejected_commit_leaves_no_group(connection: RawConnection) -> None:
    assert commit(connection, "unknown", generation=1, member="me") == UNKNOWN_MEMBER_ID
    assert groups_at(connection) == []


def test_a_topic_that_is_named_many_times_is_described_once(connection: RawConnection) -> None:
    answer = ask_metadata(connection, *["events"] * NAMED, "more", *["events"] * NAMED)
    assert [topic.name for topic in answer.topics] == ["events", "more"]


def test_settings_requested_many_times_are_returned_once(connection: RawConnection) -> None:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="events", configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[wanted] * NAMED, include_synonyms=False, include_documentation=False
    )
    answer = connection.ask(request, DescribeConfigsResponse, 4)
    assert [result.resource_name for result in answer.results] == ["events"]


def test_a_group_that_is_named_many_times_is_described_once(connection: RawConnection) -> None:
    assert commit(connection, "readers") == 0
    request = DescribeGroupsRequest(groups=["readers"] * NAMED, include_authorized_operations=False)
    answer = connection.ask(request, DescribeGroupsResponse, 4)
    assert [group.group_id for group in answer.groups] == ["readers"]


def test_offsets_requested_many_times_are_returned_once(connection: RawConnection) -> None:
    assert commit(connection, "readers") == 0
    topics = [_GroupTopic(name="events", partition_indexes=[0] * (NAMED // 20))]
    groups = [_Group(group_id="readers", topics=topics) for _ in range(NAMED // 10)]
    answer = connection.ask(
        OffsetFetchRequest(groups=groups, require_stable=False), OffsetFetchResponse, 8
    )
    assert [group.group_id for group in answer.groups] == ["readers"]
    (topic,) = answer.groups[0].topics
    assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(0, 5)]


LARGE = 90 * 2**20
CONNECTIONS = 8


def test_a_large_request_other_than_produce_is_refused_at_its_first_bytes(
    broker: BrokerProcess,
) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.socket.sendall(LARGE.to_bytes(4, "big") + bytes([0, 3, 0, 9]))
        connection.until_closed()
    broker.until_says("allowed is 10 to 1114112")


@pytest.mark.long
def test_many_large_requests_share_one_budget_of_memory(broker: BrokerProcess) -> None:
    producer = ConfluentClient(broker.bootstrap_servers)
    producer.create_topic("events")
    before = broker.resident_bytes()
    connections = [RawConnection(broker.bootstrap_servers) for _ in range(CONNECTIONS)]
    try:
        start = LARGE.to_bytes(4, "big") + bytes([0, 0, 0, 9])
        for connection in connections:
            connection.socket.sendall(start)
            connection.socket.setblocking(False)
        until(lambda: not fill(connections), "the broker reads no more")
        assert broker.resident_bytes() - before < 400 * 2**20
        # Clients without large requests are served all the same.
        record = sample_records(1, 1_700_000_000_000)
        assert producer.produce("events", record, codec="none", is_idempotent=False) == [0]
    finally:
        for connection in connections:
            connection.socket.close()


def fill(connections: list[RawConnection]) -> int:
    """Send what the sockets take of large requests; the number of bytes."""
    sent = 0
    for connection in connections:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sent += connection.socket.send(bytes(2**20))
    return sent


MANY = 20_000


def metadata_of(count: int) -> Any:
    """Return a request for this many missing topics."""
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t{n}") for n in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def test_a_large_request_does_not_hold_up_other_clients(broker: BrokerProcess) -> None:
    with (
        RawConnection(broker.bootstrap_servers) as large,
        RawConnection(broker.bootstrap_servers) as small,
    ):

        def answered_meanwhile() -> int:
            large.send(metadata_of(MANY), 9)
            answered = 0
            while not large.is_readable():
                ask_metadata(small)
                answered += 1
            _, answer = large.receive(MetadataResponse, 9)
            assert len(answer.topics) == MANY
            return answered

        # This process may have paused meanwhile.
        until(lambda: answered_meanwhile() > 5, "others are answered meanwhile")


def test_a_request_after_a_large_one_finds_what_that_one_changed(
    connection: RawConnection,
) -> None:
    padding = "p" * 4_000
    wanted = _Topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=padding
    )
    for number in range(20):
        wanted.committed_offset = number
        request = OffsetCommitRequest(
            group_id="readers",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[_Topic(name="events", partitions=[wanted])],
        )
        fetch = OffsetFetchRequest(
            groups=[
                _Group(
                    group_id="readers",
                    topics=[_GroupTopic(name="events", partition_indexes=[0])],
                    member_id=None,
                    member_epoch=-1,
                )
            ],
            require_stable=False,
        )
        connection.socket.sendall(connection.encode(request, 8) + connection.encode(fetch, 8))
        connection.receive(OffsetCommitResponse, 8)
        _, answer = connection.receive(OffsetFetchResponse, 8)
        (((partition,),),) = [[t.partitions for t in g.topics] for g in answer.groups]
        assert partition.committed_offset == number


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (metadata_of(30_000), 9),
        (DescribeGroupsRequest(groups=[f"{n}" for n in range(5_001)]), 5),
        (DeleteGroupsRequest(groups_names=[f"{n}" for n in range(1_001)]), 2),
    ],
    ids=["metadata", "describe-groups", "delete-groups"],
)
def test_a_request_with_too_many_items_is_refused(
    broker: BrokerProcess, request_: Any, version: int
) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send(request_, version)
        connection.until_closed()
    broker.until_says("exceeds the limit of the request")
