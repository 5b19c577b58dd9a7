"""What a broker relies on, whichever registry it has."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from logbroker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMember,
    StoredMembership,
)
from logbroker.quotas.entities import DEFAULT, QuotaEntity, QuotaKey, Quotas
from logbroker.registry.cluster import COORDINATION_SLOTS, coordination_slot
from logbroker.registry.registry import PlacedTopic, Registry, Settings
from logbroker.registry.topic import Topic
from logbroker.security.acl import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from logbroker.security.scram import ScramCredential, ScramMechanism
from tests.unit.logbroker.registry.registry_clusters import ENDPOINT, RegistryCluster

ALONE = ((0,),)

MEMBERSHIP = StoredMembership(
    generation=7,
    protocol_type="consumer",
    protocol="range",
    leader="m-1",
    members=(
        StoredMember(
            "m-1", None, "client", "/127.0.0.1", 10_000, 60_000, (("range", b"\0\xff"),), b"\1\2"
        ),
        StoredMember("m-2", "static-é", "", "/::1", 6_000, 1, (("range", b""), ("s", b"x")), b""),
    ),
)


def stored(registry: Registry, group_id: str) -> StoredGroup | None:
    groups = registry.load_groups(coordination_slot(group_id))
    return next((group for group in groups if group.group_id == group_id), None)


def all_groups(registry: Registry) -> dict[str, StoredGroup]:
    groups = [g for slot in range(COORDINATION_SLOTS) for g in registry.load_groups(slot)]
    assert len({group.group_id for group in groups}) == len(groups)
    return {group.group_id: group for group in groups}


def test_topics_created_together_succeed_and_fail_independently(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.create_topic("there", ALONE, {})
    wanted = [
        PlacedTopic(name, ALONE, {"retention.ms": "1"})
        for name in ("first", "there", "a/b", "first.one", "first_one", "second")
    ]
    outcomes = registry.create_topics(wanted)
    assert [type(each) for each in outcomes] == [
        Topic,
        TopicAlreadyExists,
        InvalidTopic,
        Topic,
        InvalidTopic,
        Topic,
    ]
    created = {each.name: each for each in outcomes if isinstance(each, Topic)}
    assert list(created) == ["first", "first.one", "second"]
    assert {name: registry.view.topics[name] for name in created} == created


def test_a_broker_that_joined_is_in_its_own_view(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    view = registry.view
    assert dict(view.brokers) == {0: ENDPOINT}
    assert view.controller_id == 0
    assert {view.coordinators[slot] for slot in range(COORDINATION_SLOTS)} == {0}
    assert view.coordinator("any") == ENDPOINT


def test_the_cluster_keeps_its_id(cluster: RegistryCluster) -> None:
    before = cluster.start().view.cluster_id
    assert len(before) == 22
    assert cluster.start().view.cluster_id == before


def test_the_last_view_handed_on_is_the_one_to_read(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.create_topic("t", ALONE, {})
    assert cluster.seen[-1] == registry.view
    assert registry.view.topic("t").replicas == ALONE


def test_a_change_was_handed_on_when_its_call_returns(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    changes: list[Callable[[], object]] = [
        lambda: registry.create_topic("t", ALONE, {}),
        lambda: registry.grow_topic("t", ALONE * 2),
        lambda: registry.change_settings("t", lambda _: {"retention.ms": "1"}),
        lambda: registry.delete_topic("t"),
    ]
    views = []
    for change in changes:
        change()
        views.append(cluster.seen[-1].topics.get("t"))
    assert [topic and (topic.partitions, dict(topic.settings)) for topic in views] == [
        (1, {}),
        (2, {}),
        (2, {"retention.ms": "1"}),
        None,
    ]


def test_topics_outlive_a_restart(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    first = registry.create_topic("events", ALONE * 3, {"retention.ms": "1000"})
    second = registry.create_topic("delivery_log", ALONE * 8, {})
    view = cluster.start().view
    assert dict(view.topics) == {"events": first, "delivery_log": second}
    assert view.topic("events").settings == {"retention.ms": "1000"}
    assert view.topic_by_id(second.topic_id) == second
    assert view.leader(second, 7) == 0


def test_a_topic_made_again_has_another_id(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    before = registry.create_topic("t", ALONE, {"retention.ms": "1"})
    registry.delete_topic("t", before.topic_id)
    after = registry.create_topic("t", ALONE, {})
    with pytest.raises(UnknownTopicId, match="unknown topic id"):
        registry.delete_topic("t", before.topic_id)
    assert before.topic_id != after.topic_id
    assert after.settings == {}
    with pytest.raises(UnknownTopicId):
        registry.view.topic_by_id(before.topic_id)


def test_bad_names_are_refused_and_leave_nothing(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.create_topic("there_is", ALONE, {})
    refusals = {
        "a/b": InvalidTopic,
        "": InvalidTopic,
        "..": InvalidTopic,
        "there.is": InvalidTopic,
        "there_is": TopicAlreadyExists,
    }
    for name, refusal in refusals.items():
        with pytest.raises(refusal):
            registry.create_topic(name, ALONE, {})
        assert list(registry.view.topics) == ["there_is"]
    assert list(cluster.start().view.topics) == ["there_is"]


def test_unknown_topics_cannot_be_changed(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    for change in (
        lambda: registry.delete_topic("t"),
        lambda: registry.grow_topic("t", ALONE),
        lambda: registry.change_settings("t", dict),
    ):
        with pytest.raises(UnknownTopicOrPartition, match="'t'"):
            change()


def test_a_topic_only_grows_and_keeps_its_partitions_where_they_are(
    cluster: RegistryCluster,
) -> None:
    registry = cluster.start()
    before = registry.create_topic("t", ALONE * 2, {"retention.ms": "1"})
    bad: list[Sequence[Sequence[int]]] = [ALONE, ALONE * 2, ((1,), (0,), (0,))]
    for replicas in bad:
        with pytest.raises(InvalidPartitions):
            registry.grow_topic("t", replicas)
    assert registry.grow_topic("t", ALONE * 5) == replace(before, replicas=ALONE * 5)
    assert cluster.start().view.topic("t") == replace(before, replicas=ALONE * 5)


def test_new_settings_take_the_place_of_all_old_ones(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.create_topic("t", ALONE, {"retention.ms": "1", "segment.ms": "2"})

    def without_segment_ms(settings: Settings) -> Settings:
        return {name: value for name, value in settings.items() if name != "segment.ms"}

    assert registry.change_settings("t", without_segment_ms).settings == {"retention.ms": "1"}
    assert cluster.start().view.topic("t").settings == {"retention.ms": "1"}


def test_a_change_of_settings_that_is_refused_changes_nothing(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    topic = registry.create_topic("t", ALONE, {"retention.ms": "1"})

    def refuse(_: Settings) -> Settings:
        raise InvalidConfig("no")

    with pytest.raises(InvalidConfig, match="no"):
        registry.change_settings("t", refuse)
    assert registry.view.topic("t") == topic
    assert cluster.start().view.topic("t") == topic


def test_settings_cannot_be_changed_behind_the_registry(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    mine = {"retention.ms": "1"}
    created = registry.create_topic("t", ALONE, mine)
    mine["retention.ms"] = "2"
    for seen in (created, registry.view.topic("t"), cluster.start().view.topic("t")):
        assert seen.settings == {"retention.ms": "1"}
        with pytest.raises(TypeError):
            seen.settings["retention.ms"] = "2"  # type: ignore[index]


def test_threads_that_change_one_topic_lose_no_change(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.create_topic("t", ALONE, {})
    together = Barrier(4)

    def add(number: int) -> None:
        together.wait()
        registry.change_settings("t", lambda settings: {**settings, f"s{number}": "1"})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(4)))
    assert set(registry.view.topic("t").settings) == {"s0", "s1", "s2", "s3"}
    sizes = [len(view.topics["t"].settings) for view in cluster.seen if "t" in view.topics]
    assert sizes == sorted(sizes)


def test_of_threads_that_create_one_topic_one_wins(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    together = Barrier(4)

    def create(_: int) -> bool:
        together.wait()
        try:
            registry.create_topic("t", ALONE, {})
        except TopicAlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(create, range(4))) == [False, False, False, True]


def test_producer_ids_are_never_given_twice(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    with ThreadPoolExecutor(4) as threads:
        ranges = list(threads.map(registry.allocate_producer_ids, [1000, 1, 7, 1000]))
    ranges.append(cluster.start().allocate_producer_ids(1000))
    given = [each for ids in ranges for each in ids]
    assert len(given) == len(set(given)) == 3008
    assert min(given) >= 0


def test_a_group_outlives_a_restart(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    offsets = {
        ("a.b", 0): CommittedOffset(42),
        ("a.b", 11): CommittedOffset(2**63 - 1, leader_epoch=3),
        ("other", 0): CommittedOffset(0, metadata="where I was: é {} \n"),
    }
    registry.store_membership("readers", MEMBERSHIP)
    registry.commit_offsets("readers", offsets)
    expected = StoredGroup("readers", MEMBERSHIP, offsets)
    assert stored(registry, "readers") == expected
    assert stored(cluster.start(), "readers") == expected


def test_a_group_is_found_in_its_own_slot_alone(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    names = [f"group-{number}" for number in range(40)]
    for name in names:
        registry.commit_offsets(name, {("t", 0): CommittedOffset(1)})
    assert set(all_groups(registry)) == set(names)
    restarted = cluster.start()
    assert set(all_groups(restarted)) == set(names)
    for slot in range(COORDINATION_SLOTS):
        assert {coordination_slot(g.group_id) for g in restarted.load_groups(slot)} <= {slot}


def test_groups_may_be_named_at_will(cluster: RegistryCluster) -> None:
    names = ["..", ".", "a/b", "%2F", "ä\x00\n", "\ud7ff\uffff\U0001f600", "/", " ", "x" * 300]
    registry = cluster.start()
    for name in names:
        registry.commit_offsets(name, {("t", 0): CommittedOffset(1)})
        registry.store_membership(name, MEMBERSHIP)
    restarted = cluster.start()
    assert all_groups(restarted) == {
        name: StoredGroup(name, MEMBERSHIP, {("t", 0): CommittedOffset(1)}) for name in names
    }
    for name in names:
        restarted.delete_group(name)
    assert all_groups(cluster.start()) == {}


def test_a_commit_leaves_the_other_offsets_as_they_were(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1), ("t", 1): CommittedOffset(1)})
    registry.commit_offsets("g", {("t", 1): CommittedOffset(2, metadata="m")})
    registry.commit_offsets("g", {("t", 1): CommittedOffset(3), ("u", 0): CommittedOffset(9)})
    group = stored(cluster.start(), "g")
    assert group is not None
    assert dict(group.offsets) == {
        ("t", 0): CommittedOffset(1),
        ("t", 1): CommittedOffset(3),
        ("u", 0): CommittedOffset(9),
    }


def test_only_the_deleted_offsets_are_removed(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.delete_offsets("unknown", [("t", 0)])
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1), ("u", 1): CommittedOffset(2)})
    registry.delete_offsets("g", [("t", 0), ("t", 7), ("v", 0)])
    group = stored(cluster.start(), "g")
    assert group is not None
    assert dict(group.offsets) == {("u", 1): CommittedOffset(2)}


def test_a_group_with_nothing_to_remember_is_forgotten(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    registry.delete_offsets("g", [("t", 0)])
    assert stored(registry, "g") is None
    assert stored(cluster.start(), "g") is None


def test_a_deleted_group_leaves_nothing(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.store_membership("g", MEMBERSHIP)
    registry.commit_offsets("g", {("t", n): CommittedOffset(n) for n in range(3)})
    registry.delete_group("g")
    registry.delete_group("g")
    assert stored(registry, "g") is None
    registry.commit_offsets("g", {("t", 1): CommittedOffset(5)})
    expected = StoredGroup("g", None, {("t", 1): CommittedOffset(5)})
    assert stored(cluster.start(), "g") == expected


def test_a_group_keeps_its_generation_without_members(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    registry.store_membership("g", MEMBERSHIP)
    empty = replace(MEMBERSHIP, generation=8, protocol=None, leader=None, members=())
    registry.store_membership("g", empty)
    group = stored(cluster.start(), "g")
    assert group is not None
    assert group.membership == empty


def test_times_of_commits_and_memberships_survive_a_restart(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    start_ms = time.time_ns() // 1_000_000
    registry.store_membership("g", replace(MEMBERSHIP, stored_ms=start_ms))
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1, committed_ms=start_ms)})
    end_ms = time.time_ns() // 1_000_000
    group = stored(cluster.start(), "g")
    assert group is not None
    assert group.membership is not None
    assert start_ms <= group.membership.stored_ms <= end_ms
    assert start_ms <= group.offsets["t", 0].committed_ms <= end_ms


def test_threads_that_commit_for_one_group_lose_no_offset(cluster: RegistryCluster) -> None:
    registry = cluster.start()

    def commit(partition: int) -> None:
        registry.commit_offsets("g", {("t", partition): CommittedOffset(partition)})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(commit, range(24)))
    group = stored(cluster.start(), "g")
    assert group is not None
    expected: Mapping[object, object] = {("t", n): CommittedOffset(n) for n in range(24)}
    assert group.offsets == expected


def test_quotas_are_in_every_later_view_and_survive_a_restart(cluster: RegistryCluster) -> None:
    registry = cluster.start()
    entity = QuotaEntity("alice", DEFAULT)
    values = {QuotaKey.PRODUCER_BYTE_RATE: 1024.0}
    assert registry.view.quotas == Quotas()
    registry.change_quotas(lambda quotas: quotas.with_values(entity, values))
    assert registry.view.quotas == Quotas({entity: values})
    assert cluster.seen[-1].quotas == Quotas({entity: values})
    registry = cluster.start()
    assert registry.view.quotas == Quotas({entity: values})
    registry.change_quotas(lambda quotas: quotas.with_values(entity, {}))
    assert registry.view.quotas == Quotas()


def test_users_and_acls_survive_a_restart(cluster: RegistryCluster) -> None:
    acl = Acl(
        AclResourceType.TOPIC,
        "clicks",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )
    credential = ScramCredential(bytes(16), bytes(32), bytes(32), 4096)
    registry = cluster.start()
    registry.change_acls(lambda acls: acls | {acl})
    registry.change_users(
        lambda users: users.with_credential("alice", ScramMechanism.SCRAM_SHA_256, credential)
    )
    registry = cluster.start()
    assert registry.view.acls.acls == {acl}
    assert list(registry.view.users) == ["alice"]


def test_a_change_of_quotas_may_refuse(cluster: RegistryCluster) -> None:
    def refuse(_: Quotas) -> Quotas:
        raise InvalidRequest("not these")

    registry = cluster.start()
    with pytest.raises(InvalidRequest, match="not these"):
        registry.change_quotas(refuse)
    assert registry.view.quotas == Quotas()
