"""Responses that take long are built on other threads; the loop serves others meanwhile."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.acl import DescribeAclsRequest, DescribeAclsResponse
from kafka.protocol.admin.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.protocol.admin.configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.admin.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.admin.topics import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.admin.users import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

from logbroker.config import BrokerConfig
from logbroker.security.acl import ANY, Acl, AclOperation, AclResourceType, PatternType, Permission
from logbroker.server.broker import READ_THREADS, Broker
from logbroker.server.handlers import lazy_response, logs
from logbroker.wire.apis import ApiKey
from tests.support.function_calls import calls_of
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.stepped_broker import apply_views, stepped_broker, turn_until
from tests.support.processes.waiting import until

PARTITIONS = 3
MAY_DESCRIBE = [
    Acl(kind, name, PatternType.LITERAL, "User:*", ANY, AclOperation.ALL, Permission.ALLOW)
    for kind, name in (
        (AclResourceType.TOPIC, "events"),
        (AclResourceType.GROUP, "readers"),
        (AclResourceType.CLUSTER, "kafka-cluster"),
    )
]

_Commit = OffsetCommitRequest.OffsetCommitRequestTopic
_Fetch = OffsetFetchRequest.OffsetFetchRequestGroup
_Trim = DeleteRecordsRequest.DeleteRecordsTopic


@contextmanager
def stepped(folder: Path, **settings: Any) -> Iterator[Broker]:
    """A broker whose turns are ours, with a topic."""
    with stepped_broker(BrokerConfig(folder, port=0, **settings), PARTITIONS) as broker:
        if settings:
            broker._registry.change_acls(lambda acls: acls.union(MAY_DESCRIBE))
            apply_views(broker)
        yield broker


@pytest.fixture(params=[{}, {"authorizer": True}], ids=["open", "authorizer"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    with stepped(tmp_path / "log", **request.param) as broker:
        yield broker


@contextmanager
def connect(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(f"127.0.0.1:{broker.port}") as connection:
        broker._loop._turn()
        yield connection


def ask(
    broker: Broker, connection: RawConnection, request: Any, response: Any, version: int
) -> Any:
    connection.send(request, version)
    turn_until(broker, connection.is_readable)
    return connection.receive(response, version)[1]


def is_served(broker: Broker, connection: RawConnection) -> bool:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    return bool(ask(broker, connection, request, ApiVersionsResponse, 3).api_keys)


def metadata(topics: list[str] | None, *, operations: bool = False) -> MetadataRequest:
    named = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if topics is None else [named(name=each) for each in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations,
    )


def settings_of_topic() -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="events", configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def all_acls() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )


REQUESTS: dict[str, tuple[Callable[[], Any], Any, int]] = {
    "named topics": (lambda: metadata(["events"]), MetadataResponse, 9),
    "operations of all topics": (lambda: metadata(None, operations=True), MetadataResponse, 9),
    "settings": (settings_of_topic, DescribeConfigsResponse, 4),
    "acls": (all_acls, DescribeAclsResponse, 2),
    "users": (DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, 0),
    "quotas": (DescribeClientQuotasRequest, DescribeClientQuotasResponse, 1),
    "groups": (ListGroupsRequest, ListGroupsResponse, 4),
    "offsets of a group": (
        lambda: OffsetFetchRequest(group_id="readers", topics=None),
        OffsetFetchResponse,
        7,
    ),
    "offsets of groups": (
        lambda: OffsetFetchRequest(groups=[_Fetch(group_id="readers", topics=None)]),
        OffsetFetchResponse,
        8,
    ),
}
"""Short requests whose responses grow with the cluster."""


@pytest.mark.parametrize("name", REQUESTS)
def test_a_large_response_does_not_hold_up_other_clients(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, response, version = REQUESTS[name]
    with connect(broker) as admin, connect(broker) as other:
        ask(broker, admin, commit(), OffsetCommitResponse, 8)
        monkeypatch.setattr(lazy_response, "QUICK_ITEMS_MAX", 0)
        threads_are_free = threading.Event()
        for _ in range(READ_THREADS):
            broker._read_pool.submit(threads_are_free.wait, lambda _: None)
        admin.send(make(), version)
        broker._loop._turn()
        assert is_served(broker, other)
        assert not admin.is_readable()
        threads_are_free.set()
        turn_until(broker, admin.is_readable)
        answer = admin.receive(response, version)[1]
        if name.startswith("offsets of"):
            (group,) = answer.groups if version >= 8 else [answer]
            found = {each.partition_index: each for each in group.topics[0].partitions}
            assert [found[number].committed_offset for number in range(PARTITIONS)] == [5, 6, 7]
        elif name == "groups":
            assert [each.group_id for each in answer.groups] == ["readers"]
        elif response is MetadataResponse:
            assert [len(each.partitions) for each in answer.topics] == [PARTITIONS]


def test_clients_share_the_threads_however_many_requests_one_sends(tmp_path: Path) -> None:
    with stepped(tmp_path) as broker, connect(broker) as greedy, connect(broker) as modest:
        threads_are_free = threading.Event()
        for _ in range(READ_THREADS):
            broker._read_pool.submit(threads_are_free.wait, lambda _: None)
        until(lambda: not broker._read_pool._calls, "all threads wait")
        sent = [greedy.encode(settings_of_topic(), 4) for _ in range(50)]
        greedy.socket.sendall(b"".join(sent))
        broker._loop._turn()
        modest.send(settings_of_topic(), 4)
        turn_until(broker, lambda: broker._counters.requests[ApiKey.DESCRIBE_CONFIGS] > len(sent))
        assert len(broker._read_pool._calls) == 2
        threads_are_free.set()
        for number in range(1, len(sent) + 1):
            turn_until(broker, greedy.is_readable)
            assert greedy.receive(DescribeConfigsResponse, 4)[0] == number
        turn_until(broker, modest.is_readable)
        assert not broker._dispatcher._waiting


def test_a_client_that_leaves_waits_for_nothing(tmp_path: Path) -> None:
    with stepped(tmp_path) as broker, connect(broker) as other:
        threads_are_free = threading.Event()
        for _ in range(READ_THREADS):
            broker._read_pool.submit(threads_are_free.wait, lambda _: None)
        with connect(broker) as client:
            for _ in range(50):
                client.send(settings_of_topic(), 4)
            turn_until(broker, lambda: broker._counters.requests[ApiKey.DESCRIBE_CONFIGS] == 50)
        turn_until(broker, lambda: len(broker._listener) == 1)
        threads_are_free.set()
        turn_until(broker, lambda: not broker._dispatcher._waiting)
        assert is_served(broker, other)


def test_all_topics_are_checked_on_another_thread(tmp_path: Path) -> None:
    with stepped(tmp_path, authorizer=True) as broker, connect(broker) as client:
        broker._registry.create_topic("hidden", [(0,)], {})
        apply_views(broker)
        threads_are_free = threading.Event()
        for _ in range(READ_THREADS):
            broker._read_pool.submit(threads_are_free.wait, lambda _: None)
        for version in (0, 9):
            client.send(metadata(None if version else []), version)
        with connect(broker) as other:
            assert is_served(broker, other)
        assert not client.is_readable()
        threads_are_free.set()
        turn_until(broker, client.is_readable)
        for version in (0, 9):
            turn_until(broker, client.is_readable)
            answer = client.receive(MetadataResponse, version)[1]
            assert [each.name for each in answer.topics] == ["events"]


def test_a_large_commit_is_checked_on_another_thread(broker: Broker) -> None:
    large = commit([0, 1, 2, 3] * 500)
    most = 0

    def turn_until_answered() -> None:
        nonlocal most
        while not client.is_readable():
            broker._loop.call_soon(lambda: None)
            most = max(most, calls_of(broker._loop._turn))

    with connect(broker) as client:
        client.send(large, 8)
        turn_until_answered()
        (topic,) = client.receive(OffsetCommitResponse, 8)[1].topics
        assert [each.error_code for each in topic.partitions] == [0, 0, 0, 3] * 500
        assert most < len(topic.partitions)


def test_a_commit_after_a_large_one_is_the_last(broker: Broker) -> None:
    with connect(broker) as client:
        requests = [commit([0, 1, 2] * 100), commit([0], offset=9), offsets_of_group()]
        frames = [client.encode(each, 8) for each in requests]
        client.socket.sendall(b"".join(frames))
        for response in (OffsetCommitResponse, OffsetCommitResponse, OffsetFetchResponse):
            turn_until(broker, client.is_readable)
            answer = client.receive(response, 8)[1]
        (topic,) = answer.groups[0].topics
        assert [each.committed_offset for each in topic.partitions] == [9, 6, 7]


def offsets_of_group() -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[_Fetch(group_id="readers", topics=None)])


def commit(partitions: Sequence[int] = range(PARTITIONS), offset: int = 5) -> OffsetCommitRequest:
    """A commit of `offset` plus its number for each partition."""
    committed = [
        _Commit.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset + number
        )
        for number in partitions
    ]
    return OffsetCommitRequest(
        group_id="readers",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[_Commit(name="events", partitions=committed)],
    )


def test_records_of_a_few_partitions_are_deleted_per_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "DELETIONS_PER_TURN", 1)
    partitions = [
        _Trim.DeleteRecordsPartition(partition_index=number, offset=0)
        for number in range(PARTITIONS)
    ]
    request = DeleteRecordsRequest(topics=[_Trim(name="events", partitions=partitions)])
    with stepped(tmp_path) as broker, connect(broker) as admin:
        admin.send(request, 2)
        broker._loop._turn()
        assert not admin.is_readable()
        turn_until(broker, admin.is_readable)
        answer = admin.receive(DeleteRecordsResponse, 2)[1]
        assert [
            (each.partition_index, each.error_code) for each in answer.topics[0].partitions
        ] == [(number, 0) for number in range(PARTITIONS)]
