"""The group protocol over a raw socket: requests and versions that stock clients do not send."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.raw_group import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NON_EMPTY_GROUP,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    RANGE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    RawMember,
    offsets_in,
    until_groups_loaded,
)
from tests.support.processes.waiting import DEADLINE_S, until

TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53

OPTIONS = ("--group-initial-rebalance-delay-ms", "0", "--group-max-size", "3")
EVENTS = ("events", 0)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder / "log", *OPTIONS) as broker:
        broker.serve().make_topic("events", 3)
        until_groups_loaded(broker.bootstrap_servers)
        yield broker


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group of this test's own."""
    return str(request.node.name)


@pytest.fixture
def member(serving: BrokerProcess, group: str) -> Iterator[RawMember]:
    with RawMember(serving.bootstrap_servers, group) as member:
        yield member


@pytest.fixture
def other(serving: BrokerProcess, group: str) -> Iterator[RawMember]:
    with RawMember(serving.bootstrap_servers, group) as member:
        yield member


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_member_requests_works(version: int, member: RawMember) -> None:
    joined = member.join(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert [each.member_id for each in joined.members] == [member.member_id] == [joined.leader]
    assert joined.members[0].metadata == RANGE[0][1]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    sync, heartbeat, leave = min(version, 5), min(version, 4), min(version, 5)
    synced = member.sync({member.member_id: b"everything"}, sync)
    assert (synced.error_code, synced.assignment) == (NONE, b"everything")
    assert member.heartbeat(heartbeat) == NONE
    commit, fetch = max(2, min(version, 8)), max(1, min(version, 7))
    assert member.commit({EVENTS: version}, commit) == {EVENTS: NONE}
    assert offsets_in(member.fetch({"events": [0]}, fetch).topics) == {EVENTS: version}
    left = member.leave(leave)
    assert left.error_code == NONE
    assert [each.error_code for each in left.members or ()] == ([NONE] if leave >= 3 else [])


def test_a_join_of_version_0_has_no_rebalance_timeout_and_the_group_stabilizes(
    member: RawMember, other: RawMember
) -> None:
    member.join(0)
    member.sync({member.member_id: b"all"}, 0)
    other.send_join(0)
    until(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")
    member.send_join(0)
    assert len(member.joined(0).members) == 2
    assert other.joined(0).generation_id == 2


@pytest.mark.parametrize("version", [4, 5, 9])
def test_a_new_member_gets_its_id_first(version: int, member: RawMember) -> None:
    member.send_join(version)
    answer = member.joined(version)
    assert answer.error_code == MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("raw-")
    assert member.heartbeat() == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("group_id", ["", 256 * "g"])
def test_a_group_with_members_needs_an_id_that_is_not_too_long(
    group_id: str, member: RawMember
) -> None:
    assert member.join(group=group_id).error_code == INVALID_GROUP_ID
    assert member.sync(group=group_id).error_code == INVALID_GROUP_ID
    assert member.heartbeat(group=group_id) == INVALID_GROUP_ID
    assert member.leave(group=group_id).error_code == INVALID_GROUP_ID
    member.group = group_id
    assert offset_delete(member, [EVENTS]) == (INVALID_GROUP_ID, {})


def test_a_group_id_must_not_be_too_long(member: RawMember) -> None:
    group_id = 256 * "g"
    assert member.commit({EVENTS: 1}, group=group_id) == {EVENTS: INVALID_GROUP_ID}
    assert member.fetch(None, group=group_id).error_code == INVALID_GROUP_ID
    assert delete_groups(member, group_id) == {group_id: INVALID_GROUP_ID}
    (described,) = describe(member, group_id)
    assert described.error_code == INVALID_GROUP_ID


@pytest.mark.parametrize(
    "group", [255 * "g", "a/b", "..", "per%20cent", "\u00fcml\u00e4ut \u2713", "\x01"]
)
def test_any_other_group_id_is_valid(group: str, member: RawMember) -> None:
    member.stable()
    assert member.commit({EVENTS: 7}) == {EVENTS: NONE}
    assert member.committed(*EVENTS) == 7


@pytest.mark.parametrize("timeout_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_timeout_out_of_range_is_rejected(timeout_ms: int, member: RawMember) -> None:
    answer = member.join(session_timeout_ms=timeout_ms)
    assert (answer.error_code, answer.generation_id) == (INVALID_SESSION_TIMEOUT, -1)


def test_a_member_without_common_protocol_is_rejected(member: RawMember, other: RawMember) -> None:
    member.stable()
    for version in (3, 7, 9):
        answer = other.join(version, protocols=(("sticky", b""),))
        assert answer.error_code == INCONSISTENT_GROUP_PROTOCOL
        assert answer.protocol_name == (None if version >= 7 else "")
    assert other.join(protocol_type="connect").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert other.join(protocols=()).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert member.heartbeat() == NONE
    assert member.sync(protocol="sticky").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect").error_code == INCONSISTENT_GROUP_PROTOCOL


def test_an_unknown_member_is_rejected(member: RawMember, other: RawMember) -> None:
    member.stable()
    assert other.heartbeat(member_id="unknown", generation=1) == UNKNOWN_MEMBER_ID
    assert other.sync(member_id="unknown", generation=1).error_code == UNKNOWN_MEMBER_ID
    assert other.join(member_id="unknown").error_code == UNKNOWN_MEMBER_ID
    (left,) = other.leave(member_id="unknown").members
    assert left.error_code == UNKNOWN_MEMBER_ID
    assert other.leave(2, member_id="unknown").error_code == UNKNOWN_MEMBER_ID
    assert other.commit({EVENTS: 1}, member_id="unknown", generation=1) == {
        EVENTS: UNKNOWN_MEMBER_ID
    }
    assert other.commit({EVENTS: 1}) == {EVENTS: UNKNOWN_MEMBER_ID}
    assert other.committed(*EVENTS) == -1


@pytest.mark.parametrize("generation", [-1, 0, 2, 2**31 - 1])
def test_another_generation_is_rejected(generation: int, member: RawMember) -> None:
    member.stable()
    assert member.heartbeat(generation=generation) == ILLEGAL_GENERATION
    assert member.sync(generation=generation).error_code == ILLEGAL_GENERATION
    assert member.commit({EVENTS: 1}, generation=generation) == {EVENTS: ILLEGAL_GENERATION}
    assert member.committed(*EVENTS) == -1


def test_a_static_member_replaced_by_a_new_instance_is_fenced(
    serving: BrokerProcess, group: str
) -> None:
    with (
        RawMember(serving.bootstrap_servers, group, "one") as old,
        RawMember(serving.bootstrap_servers, group, "one") as new,
    ):
        old.stable()
        answer = new.join()
        assert (answer.error_code, answer.generation_id) == (NONE, 1)
        assert answer.member_id != old.member_id
        assert new.sync().assignment == b"everything"
        assert old.heartbeat() == FENCED_INSTANCE_ID
        assert old.sync().error_code == FENCED_INSTANCE_ID
        assert old.join().error_code == FENCED_INSTANCE_ID
        assert old.commit({EVENTS: 1}) == {EVENTS: FENCED_INSTANCE_ID}
        (left,) = old.leave().members
        assert left.error_code == FENCED_INSTANCE_ID


@pytest.mark.parametrize("instance_id", ["", 250 * "i"])
def test_an_instance_id_must_not_be_empty_or_too_long(instance_id: str, member: RawMember) -> None:
    assert member.join(instance_id=instance_id).error_code == INVALID_REQUEST


def test_a_full_group_accepts_no_further_member(serving: BrokerProcess, group: str) -> None:
    members = [RawMember(serving.bootstrap_servers, group) for _ in range(4)]
    members[0].stable()
    for one in members[1:3]:
        one.send_join(3)
    until(lambda: len(describe(members[3], group)[0].members) == 3, "all want to join")
    members[0].send_join(3)
    assert len(members[0].joined(3).members) == 3
    assert members[3].join(3).error_code == GROUP_MAX_SIZE_REACHED
    for one in members:
        one.connection.socket.close()


def test_a_commit_fails_for_each_unknown_partition(member: RawMember) -> None:
    member.stable()
    assert member.commit({EVENTS: 5, ("events", 3): 6, ("nothing", 0): 7, ("events", -1): 8}) == {
        EVENTS: NONE,
        ("events", 3): UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): UNKNOWN_TOPIC_OR_PARTITION,
        ("events", -1): UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert offsets_in(member.fetch(None).topics) == {EVENTS: 5}


def test_metadata_of_an_offset_is_stored_and_limited(member: RawMember) -> None:
    member.stable()
    assert member.commit({EVENTS: 5}, metadata=4_096 * "\u00fc", leader_epoch=3) == {EVENTS: NONE}
    assert member.commit({EVENTS: 6}, metadata=4_097 * "x") == {EVENTS: OFFSET_METADATA_TOO_LARGE}
    (topic,) = member.fetch({"events": [0]}).topics
    (found,) = topic.partitions
    assert (found.committed_offset, found.committed_leader_epoch) == (5, 3)
    assert found.metadata == 4_096 * "\u00fc"


def test_a_negative_offset_is_kept_as_it_is(member: RawMember) -> None:
    assert member.commit({EVENTS: -2}) == {EVENTS: NONE}
    assert member.committed(*EVENTS) == -2


def test_offsets_may_be_committed_without_a_group_id(member: RawMember) -> None:
    assert member.commit({EVENTS: 7}, group="") == {EVENTS: NONE}
    assert offsets_in(member.fetch({"events": [0]}, group="").topics) == {EVENTS: 7}
    assert offsets_in(member.fetch({"events": [0]}, 1, group="").topics) == {EVENTS: 7}


def test_a_client_outside_the_group_may_commit_if_it_has_no_members(member: RawMember) -> None:
    assert member.commit({EVENTS: 11}) == {EVENTS: NONE}
    assert member.committed(*EVENTS) == 11
    (described,) = describe(member, member.group)
    assert (described.group_state, described.protocol_type) == ("Empty", "")


def test_an_uncommitted_offset_is_minus_one(member: RawMember) -> None:
    member.commit({EVENTS: 1})
    answer = member.fetch({"events": [1, 99], "nothing": [0]})
    assert offsets_in(answer.topics) == {("events", 1): -1, ("events", 99): -1, ("nothing", 0): -1}
    assert {each.error_code for topic in answer.topics for each in topic.partitions} == {NONE}
    assert offsets_in(member.fetch({"events": [0]}, group="no such group").topics) == {EVENTS: -1}


def test_version_1_returns_an_error_with_each_partition(member: RawMember) -> None:
    (topic,) = member.fetch({"events": [0, 1]}, 1, group=256 * "g").topics
    assert [each.error_code for each in topic.partitions] == 2 * [INVALID_GROUP_ID]


def test_many_groups_are_fetched_in_one_request(member: RawMember, group: str) -> None:
    member.commit({EVENTS: 1})
    member.commit({("events", 2): 2}, group=f"{group}-2")
    topic = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        groups=[
            wanted(group_id=f"{group}-2", topics=None),
            wanted(group_id=256 * "g", topics=None),
            wanted(group_id=group, topics=[topic(name="events", partition_indexes=[1, 0])]),
        ],
        require_stable=False,
    )
    answer = member.connection.ask(request, OffsetFetchResponse, 8)
    assert [
        (each.group_id, each.error_code, offsets_in(each.topics)) for each in answer.groups
    ] == [
        (f"{group}-2", NONE, {("events", 2): 2}),
        (256 * "g", INVALID_GROUP_ID, {}),
        (group, NONE, {("events", 1): -1, EVENTS: 1}),
    ]
    nothing = OffsetFetchRequest(groups=[], require_stable=False)
    assert member.connection.ask(nothing, OffsetFetchResponse, 8).groups == []


def test_offsets_are_deleted_but_those_that_are_read(member: RawMember, other: RawMember) -> None:
    member.stable()
    member.commit({EVENTS: 5, ("events", 1): 6})
    assert offset_delete(other, [EVENTS]) == (NONE, {EVENTS: GROUP_SUBSCRIBED_TO_TOPIC})
    member.leave()
    assert offset_delete(other, [EVENTS, ("nothing", 0)]) == (
        NONE,
        {EVENTS: NONE, ("nothing", 0): UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert offsets_in(other.fetch(None).topics) == {("events", 1): 6}
    other.group = "no such group"
    assert offset_delete(other, [EVENTS]) == (GROUP_ID_NOT_FOUND, {})


def test_groups_without_members_are_deleted_with_their_offsets(
    member: RawMember, other: RawMember, group: str
) -> None:
    member.stable()
    member.commit({EVENTS: 5})
    names = [group, "no such group", group]
    assert delete_groups(other, *names) == {
        group: NON_EMPTY_GROUP,
        "no such group": GROUP_ID_NOT_FOUND,
    }
    member.leave()
    assert delete_groups(other, group) == {group: NONE}
    assert other.committed(*EVENTS) == -1
    assert delete_groups(other, group) == {group: GROUP_ID_NOT_FOUND}
    assert delete_groups(other) == {}


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_by_state_and_type(version: int, member: RawMember) -> None:
    member.stable()
    member.commit({EVENTS: 1}, group=f"{member.group} 2", member_id="", generation=-1)
    mine = {member.group: "Stable", f"{member.group} 2": "Empty"}
    found = list_groups(member, version)
    assert found.keys() >= mine.keys()
    assert found[member.group].protocol_type == "consumer"
    if version >= 4:
        assert {name: found[name].group_state for name in mine} == mine
        stable = list_groups(member, version, states=["stable", "Dead"])
        assert member.group in stable
        assert f"{member.group} 2" not in stable
    if version >= 5:
        assert found[member.group].group_type == "classic"
        assert member.group in list_groups(member, version, types=["Classic"])
        assert list_groups(member, version, types=["consumer"]) == {}


@pytest.mark.parametrize("version", range(6))
def test_groups_are_described_with_members_and_assignments(version: int, member: RawMember) -> None:
    member.stable()
    described, dead = describe(member, member.group, "no such group", version=version)
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    (one,) = described.members
    assert (one.member_id, one.client_id, one.client_host) == (
        member.member_id,
        "raw",
        "/127.0.0.1",
    )
    assert (one.member_metadata, one.member_assignment) == (RANGE[0][1], b"everything")
    assert (dead.group_state, dead.error_code, dead.members) == ("Dead", NONE, [])


@pytest.mark.parametrize("version", range(5))
def test_the_coordinator_of_each_group_is_this_broker(
    version: int, member: RawMember, serving: BrokerProcess
) -> None:
    request = FindCoordinatorRequest(key="a", key_type=0, coordinator_keys=["a", "b"])
    answer = member.connection.ask(request, FindCoordinatorResponse, version)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (NONE, 0, "127.0.0.1", serving.port)
    ] * len(found)
    if version >= 4:
        assert [each.key for each in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(1, TRANSACTIONAL_ID_AUTHORIZATION_FAILED), (2, INVALID_REQUEST), (-1, INVALID_REQUEST)],
)
def test_other_coordinator_types_are_rejected(kind: int, code: int, member: RawMember) -> None:
    for version in (1, 4):
        request = FindCoordinatorRequest(key="a", key_type=kind, coordinator_keys=["a"])
        answer = member.connection.ask(request, FindCoordinatorResponse, version)
        (found,) = answer.coordinators if version >= 4 else [answer]
        coordinator = (found.error_code, found.node_id, found.host, found.port)
        # Clients retry COORDINATOR_NOT_AVAILABLE forever.
        assert coordinator == (code, -1, "", -1)


def test_a_connection_that_waits_for_a_rebalance_is_not_idle(tmp_path: Path) -> None:
    options = (*OPTIONS, "--connection-idle-s", "5")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        address = broker.serve().bootstrap_servers
        until_groups_loaded(address)
        with RawMember(address) as member, RawMember(address) as other:
            member.stable()
            other.send_join(3)
            with RawConnection(address) as idle:
                idle.until_closed()
            assert not other.connection.is_readable()
            with RawMember(address) as again:
                again.member_id = member.member_id
                assert len(again.join().members) == 2
            assert other.joined(3).error_code == NONE


def test_the_group_does_not_wait_for_a_disconnected_new_member(
    member: RawMember, other: RawMember, serving: BrokerProcess
) -> None:
    member.stable()
    with RawMember(serving.bootstrap_servers, member.group) as leaving:
        leaving.send_join(3)
        until(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")
        other.send_join(3)
        until(lambda: len(describe(member, member.group)[0].members) == 3, "all want to join")
    until(lambda: len(describe(member, member.group)[0].members) == 2, "one has hung up")
    assert len(member.join().members) == 2
    assert other.joined(3).error_code == NONE


def test_a_group_continues_at_its_offsets_after_its_broker_is_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", *OPTIONS) as broker:
        broker.serve().make_topic("events")
        until_groups_loaded(broker.bootstrap_servers)
        with RawMember(broker.bootstrap_servers) as member:
            member.stable()
            member.commit({EVENTS: 42})
            broker.kill()
            broker.serve()
            until_groups_loaded(broker.bootstrap_servers)
            with RawMember(broker.bootstrap_servers) as again:
                again.member_id, again.generation = member.member_id, member.generation
                assert again.heartbeat() == NONE
                assert again.sync().assignment == b"everything"
                assert again.committed(*EVENTS) == 42
                assert again.commit({EVENTS: 43}) == {EVENTS: NONE}


def test_the_offsets_of_a_deleted_topic_are_deleted(
    member: RawMember, serving: BrokerProcess
) -> None:
    serving.make_topic("doomed")
    member.commit({("doomed", 0): 5, EVENTS: 6})
    admin = AdminClient({"bootstrap.servers": serving.bootstrap_servers})
    admin.delete_topics(["doomed"])["doomed"].result(DEADLINE_S)
    until(lambda: offsets_in(member.fetch(None).topics) == {EVENTS: 6}, "its offsets are gone")
    serving.make_topic("doomed")
    assert member.committed("doomed", 0) == -1


def list_groups(
    member: RawMember, version: int, states: Any = (), types: Any = ()
) -> dict[str, Any]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = member.connection.ask(request, ListGroupsResponse, version)
    assert answer.error_code == NONE
    return {each.group_id: each for each in answer.groups}


def describe(member: RawMember, *groups: str, version: int = 5) -> list[Any]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=False)
    found: list[Any] = member.connection.ask(request, DescribeGroupsResponse, version).groups
    assert [each.group_id for each in found] == list(groups)
    return found


def delete_groups(member: RawMember, *groups: str) -> dict[str, int]:
    request = DeleteGroupsRequest(groups_names=list(groups))
    answer = member.connection.ask(request, DeleteGroupsResponse, 2)
    assert [each.group_id for each in answer.results] == list(groups)
    return {each.group_id: each.error_code for each in answer.results}


def offset_delete(
    member: RawMember, places: list[tuple[str, int]]
) -> tuple[int, dict[tuple[str, int], int]]:
    topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition_class = topic_class.OffsetDeleteRequestPartition
    topics = [
        topic_class(name=topic, partitions=[partition_class(partition_index=partition)])
        for topic, partition in places
    ]
    request = OffsetDeleteRequest(group_id=member.group, topics=topics)
    answer = member.connection.ask(request, OffsetDeleteResponse, 0)
    return answer.error_code, {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
