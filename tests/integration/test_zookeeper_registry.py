"""Several brokers' registries in one real ZooKeeper, all of which are well."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from logbroker.errors import (
    ConfigurationError,
    GroupTooLarge,
    InvalidPartitions,
    InvalidTopic,
    NotCoordinator,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from logbroker.groups.stored import CommittedOffset, StoredMember, StoredMembership
from logbroker.registry.cluster import COORDINATION_SLOTS, ClusterView, coordination_slot
from logbroker.registry.topic import Topic
from logbroker.registry.zookeeper import paths, topics
from logbroker.registry.zookeeper.payloads import format_settings, format_topic
from logbroker.registry.zookeeper.registry import ZooKeeperRegistry
from logbroker.registry.zookeeper.session import children
from tests.support.kafka.registry_members import Cluster, RegistryMember, cluster_at, settle
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import until


@pytest.fixture
def cluster(zookeeper: SharedZooKeeper) -> Iterator[Cluster]:
    """A cluster without brokers."""
    with cluster_at(zookeeper.fresh_chroot()) as opened:
        yield opened


def group_of(slot: int) -> str:
    """The name of a group that falls into a slot."""
    names = (f"group-{number}" for number in range(100_000))
    return next(name for name in names if coordination_slot(name) == slot)


def has_topic(name: str, view: ClusterView) -> bool:
    return name in view.topics


def requests_for(registry: ZooKeeperRegistry, group: str) -> list[Callable[[], object]]:
    """Everything that only the coordinator of a group may ask for."""
    return [
        lambda: registry.load_groups(coordination_slot(group)),
        lambda: registry.commit_offsets(group, {("t", 0): CommittedOffset(9)}),
        lambda: registry.store_membership(group, StoredMembership(9, "c", None, None, ())),
        lambda: registry.delete_offsets(group, [("t", 0)]),
        lambda: registry.delete_group(group),
    ]


def test_brokers_see_each_other_come_and_go(cluster: Cluster) -> None:
    first = cluster.join_broker(1)
    second = cluster.join_broker(2)
    first.sees(lambda view: view.brokers == {1: first.endpoint, 2: second.endpoint}, "both")
    assert second.view.cluster_id == first.view.cluster_id
    second.registry.close()
    first.sees(lambda view: set(view.brokers) == {1}, "itself alone")


def test_brokers_that_start_together_found_one_cluster(zookeeper: SharedZooKeeper) -> None:
    connect = zookeeper.fresh_chroot()
    together = Barrier(3)

    def start(broker_id: int) -> tuple[str, ZooKeeperRegistry]:
        together.wait()
        registry = ZooKeeperRegistry.open(connect, broker_id, 30.0, f"d-{broker_id}")
        return registry.view.cluster_id, registry

    with ThreadPoolExecutor(3) as threads:
        started = list(threads.map(start, range(3)))
    for _, registry in started:
        registry.close()
    assert len({cluster_id for cluster_id, _ in started}) == 1


def test_a_path_of_many_parts_is_made(zookeeper: SharedZooKeeper) -> None:
    with cluster_at(f"{zookeeper.fresh_chroot()}/a/b/c") as cluster:
        broker = cluster.join_broker(1)
        broker.registry.create_topic("t", [[1]], {})
        assert cluster.client().exists("/brokers/topics/t")


def test_what_one_broker_does_to_a_topic_all_see(cluster: Cluster) -> None:
    first, second = cluster.join_broker(1), cluster.join_broker(2)
    created = first.registry.create_topic("t", [[1], [2]], {"retention.ms": "5"})
    second.sees(lambda view: view.topics == {"t": created}, "the topic")
    settle(first, second)
    assert [second.view.leader(created, n) for n in (0, 1)] == [1, 2]
    grown = second.registry.grow_topic("t", [[1], [2], [2]])
    first.sees(lambda view: view.topics == {"t": grown}, "another partition")
    changed = second.registry.change_settings("t", lambda old: {**old, "segment.ms": "7"})
    first.sees(lambda view: view.topics == {"t": changed}, "another setting")
    assert changed.settings == {"retention.ms": "5", "segment.ms": "7"}
    first.registry.delete_topic("t")
    second.sees(lambda view: not view.topics, "no topic")
    again = second.registry.create_topic("t", [[2]], {})
    first.sees(lambda view: view.topics == {"t": again}, "the new topic")


def test_a_partition_whose_broker_is_gone_has_no_leader_until_it_returns(cluster: Cluster) -> None:
    first, second = cluster.join_broker(1), cluster.join_broker(2)
    topic = first.registry.create_topic("t", [[1], [2]], {})
    first.sees(lambda view: view.leader(topic, 1) == 2, "a leader")
    second.registry.close()
    first.sees(lambda view: view.leader(topic, 1) is None, "no leader")
    assert first.view.leader(topic, 0) == 1
    cluster.join_broker(2)
    first.sees(lambda view: view.leader(topic, 1) == 2, "the leader again")


def test_of_two_brokers_that_create_one_topic_one_wins(cluster: Cluster) -> None:
    brokers = [cluster.join_broker(1), cluster.join_broker(2)]
    for name in ("a", "b", "c", "d", "e"):
        together = Barrier(4)

        def create(
            member: RegistryMember, name: str = name, together: Barrier = together
        ) -> Topic | None:
            together.wait()
            try:
                return member.registry.create_topic(name, [[member.broker_id]], {})
            except TopicAlreadyExists:
                return None

        with ThreadPoolExecutor(4) as threads:
            created = [each for each in threads.map(create, brokers * 2) if each is not None]
        assert len(created) == 1
        for broker in brokers:
            broker.sees(partial(has_topic, name), "the topic")
            assert broker.view.topic(name) == created[0]


def test_only_names_that_may_collide_are_compared_with_all(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def recorded(path: str) -> Any:
        listed.append(path)
        return children(path)

    monkeypatch.setattr(topics, "children", recorded)
    registry = cluster.join_broker(1).registry
    registry.create_topic("clicks", [[1]], {})
    with pytest.raises(TopicAlreadyExists):
        registry.create_topic("clicks", [[1]], {})
    assert listed == []
    registry.create_topic("a.b", [[1]], {})
    with pytest.raises(InvalidTopic, match=r"'a_b' collides with 'a.b'"):
        registry.create_topic("a_b", [[1]], {})
    with pytest.raises(InvalidTopic, match="topic name is 'a/b'"):
        registry.create_topic("a/b", [[1]], {})
    assert listed == [paths.BROKER_TOPICS] * 2


def test_brokers_that_change_one_topic_together_lose_no_change(cluster: Cluster) -> None:
    brokers = [cluster.join_broker(1), cluster.join_broker(2), cluster.join_broker(3)]
    brokers[0].registry.create_topic("t", [[1]], {})
    for broker in brokers:
        broker.sees(lambda view: "t" in view.topics, "the topic")

    def change(number: int) -> None:
        registry = brokers[number % 3].registry
        registry.change_settings("t", lambda old: {**old, f"setting-{number}": "1"})

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(change, range(18)))
    expected = {f"setting-{number}": "1" for number in range(18)}
    for broker in brokers:
        broker.sees(lambda view: view.topic("t").settings == expected, "every change")


def test_producer_ids_are_given_out_once_in_a_cluster(cluster: Cluster) -> None:
    members = [cluster.open_broker(number) for number in (1, 2, 3)]

    def allocate(number: int) -> range:
        return members[number % 3].registry.allocate_producer_ids(number + 1)

    with ThreadPoolExecutor(6) as threads:
        blocks = list(threads.map(allocate, range(30)))
    assert [len(block) for block in blocks] == list(range(1, 31))
    given = [each for block in blocks for each in block]
    assert len(set(given)) == len(given)


def test_each_slot_has_one_coordinator_while_brokers_join_and_leave(cluster: Cluster) -> None:
    first = cluster.join_broker(1)
    settle(first)
    second, third = cluster.join_broker(2), cluster.join_broker(3)
    settle(first, second, third)
    assert len(first.slots) + len(second.slots) + len(third.slots) == COORDINATION_SLOTS
    before = first.slots
    second.registry.close()
    settle(first, third)
    assert before <= first.slots
    third.registry.close()
    settle(first)


def test_the_controller_is_always_one_that_lives(cluster: Cluster) -> None:
    first, second = cluster.join_broker(1), cluster.join_broker(2)
    settle(first, second)
    leaver, other = (first, second) if first.view.controller_id == 1 else (second, first)
    leaver.registry.close()
    other.sees(lambda view: view.controller_id == other.broker_id, "itself as the controller")


def test_a_group_moves_with_its_slot_and_its_former_coordinator_is_refused(
    cluster: Cluster,
) -> None:
    first = cluster.join_broker(1)
    settle(first)
    groups = {slot: group_of(slot) for slot in range(COORDINATION_SLOTS)}
    for group in groups.values():
        first.registry.commit_offsets(group, {("t", 0): CommittedOffset(1)})
    second = cluster.join_broker(2)
    settle(first, second)
    for slot, group in groups.items():
        holder, other = (first, second) if slot in first.slots else (second, first)
        holder.registry.commit_offsets(group, {("t", 1): CommittedOffset(2)})
        (read,) = holder.registry.load_groups(slot)
        assert read.offsets == {("t", 0): CommittedOffset(1), ("t", 1): CommittedOffset(2)}
        for ask in requests_for(other.registry, group):
            with pytest.raises(NotCoordinator):
                ask()
        assert holder.registry.load_groups(slot) == [read]


def test_nodes_look_as_kafkas_and_the_papers_do(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    topic = broker.registry.create_topic("t", [[1], [1]], {"retention.ms": "5"})
    broker.registry.commit_offsets(
        "a/b", {("t", 0): CommittedOffset(42), ("t", 1): CommittedOffset(7, 2, "note")}
    )
    broker.registry.allocate_producer_ids(1000)
    client = cluster.client()

    def content(path: str) -> Any:
        return json.loads(client.get(path)[0])

    assert content("/brokers/topics/t")["partitions"] == {"0": [1], "1": [1]}
    assert content("/config/topics/t") == {"version": 1, "config": {"retention.ms": "5"}}
    assert content("/brokers/ids/1")["endpoints"] == ["PLAINTEXT://127.0.0.1:9001"]
    assert content("/controller")["brokerid"] == 1
    assert content("/cluster/id") == {"version": "1", "id": broker.view.cluster_id}
    assert content("/latest_producer_id_block")["block_end"] == "999"
    assert client.get("/consumers/a%2Fb/offsets/t/0")[0] == b"42"
    second = client.get("/consumers/a%2Fb/offsets/t/1")[0]
    assert second == b'7 {"leader_epoch": 2, "metadata": "note"}'
    assert topic.topic_id == broker.view.topic("t").topic_id


def test_offsets_of_the_papers_consumers_are_read(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    client = cluster.client()
    client.create("/consumers/paper/offsets/t/3", b"12", makepath=True)
    client.create("/consumers/paper/offsets/t/4", b"soon")
    client.create("/consumers/paper/offsets/t/last", b"5")
    client.create("/consumers/paper/ids", b"")
    client.create("/consumers/broken/membership", b"{", makepath=True)
    (group,) = broker.registry.load_groups(coordination_slot("paper"))
    assert (group.group_id, group.membership) == ("paper", None)
    assert group.offsets == {("t", 3): CommittedOffset(12)}
    assert broker.registry.has_paper_consumers("paper")
    assert not broker.registry.has_paper_consumers("broken")
    assert not broker.registry.has_paper_consumers("absent")
    broker.registry.delete_group("paper")
    assert client.get_children("/consumers/paper") == ["ids"]
    names = {g.group_id for n in broker.slots for g in broker.registry.load_groups(n)}
    assert names == set()


def test_a_group_without_a_generation_leaves_nothing_with_its_last_offset(
    cluster: Cluster,
) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    registry, client = broker.registry, cluster.client()
    client.create("/consumers/paper/ids", b"", makepath=True)
    places = [("t", 0), ("t", 1), ("u", 0)]
    for group in ("simple", "paper", "member"):
        registry.commit_offsets(group, dict.fromkeys(places, CommittedOffset(1)))
    registry.store_membership("member", StoredMembership(1, "consumer", None, None, ()))
    for group in ("simple", "paper", "member"):
        registry.delete_offsets(group, places[:2])
        assert client.exists(f"/consumers/{group}/offsets/u/0")
        registry.delete_offsets(group, places)
        registry.delete_offsets(group, places)
    assert sorted(client.get_children("/consumers")) == ["member", "paper"]
    assert client.get_children("/consumers/paper/offsets/t") == []
    registry.commit_offsets("simple", {("t", 0): CommittedOffset(2)})
    (stored,) = registry.load_groups(coordination_slot("simple"))
    assert stored.offsets == {("t", 0): CommittedOffset(2)}


def test_a_second_broker_with_the_same_id_is_rejected(
    cluster: Cluster,
) -> None:
    first = cluster.join_broker(1)
    double = cluster.open_broker(1, timeout_s=1.0, directory_id="another-directory")
    with pytest.raises(
        ConfigurationError,
        match=r"broker_id is 1; a broker at 127.0.0.1:9001 .* directory-1, not another-directory",
    ):
        double.join()
    assert double.views == []
    first.registry.create_topic("t", [[1]], {})
    assert set(first.view.brokers) == {1}


def test_who_waits_for_an_id_gets_it_when_its_holder_leaves(cluster: Cluster) -> None:
    first = cluster.join_broker(1)
    waiting = cluster.open_broker(1, directory_id="another-directory")
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(waiting.join)
        first.registry.close()
        joining.result()
    settle(waiting)


def test_a_topic_that_makes_no_sense_is_left_out_and_named(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    good = broker.registry.create_topic("good", [[1]], {})
    client = cluster.client()
    client.create("/brokers/topics/broken", b"{")
    client.create("/brokers/topics/a b", format_topic(Topic("a b", uuid4(), ((1,),), {})))
    client.create("/brokers/ids/nonsense", b"")
    client.create("/brokers/ids/9", b"[]")
    broker.sees(lambda view: view.unreadable == {"broken", "a b"}, "that two cannot be read")
    assert broker.view.topics == {"good": good}
    assert set(broker.view.brokers) == {1}
    with pytest.raises(UnknownTopicOrPartition):
        broker.registry.grow_topic("broken", [[1]])
    with pytest.raises(TopicAlreadyExists):
        broker.registry.create_topic("broken", [[1]], {})
    later = cluster.open_broker(2)
    assert later.view.unreadable == {"broken", "a b"}
    assert later.view.topics == {"good": good}
    mended = Topic("broken", uuid4(), ((1,),), {})
    client.set("/brokers/topics/broken", format_topic(mended))
    broker.sees(lambda view: view.topics.get("broken") == mended, "the mended topic")
    client.set("/config/topics/good", b"no settings")
    broker.sees(lambda view: view.unreadable == {"good", "a b"}, "that another broke")
    broker.registry.delete_topic("good")
    client.delete("/brokers/topics/a b")
    broker.sees(lambda view: not view.unreadable, "nothing that cannot be read")


def test_settings_that_come_after_their_topic_are_seen(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    client = cluster.client()
    client.create("/brokers/topics/t", format_topic(Topic("t", uuid4(), ((1,),), {})))
    broker.sees(lambda view: "t" in view.topics, "the topic")
    client.create("/config/topics/t", format_settings({"retention.ms": "5"}))
    broker.sees(lambda view: view.topic("t").settings == {"retention.ms": "5"}, "its settings")
    client.delete("/config/topics/t")
    broker.sees(lambda view: view.topic("t").settings == {}, "none")
    broker.registry.change_settings("t", lambda old: {**old, "segment.ms": "7"})
    assert json.loads(client.get("/config/topics/t")[0])["config"] == {"segment.ms": "7"}


def test_settings_that_were_there_before_their_topic_are_replaced(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    cluster.client().create("/config/topics/t", format_settings({"retention.ms": "5"}))
    assert broker.registry.create_topic("t", [[1]], {}).settings == {}
    assert broker.view.topic("t").settings == {}


def test_a_topic_with_nodes_of_kafkas_below_is_deleted_whole(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    broker.registry.create_topic("t", [[1]], {})
    client = cluster.client()
    client.create("/brokers/topics/t/partitions/0/state", b"{}", makepath=True)
    broker.registry.delete_topic("t")
    assert client.get_children("/brokers/topics") == []
    assert client.get_children("/config/topics") == []


@pytest.mark.long
def test_a_thousand_topics_become_visible(cluster: Cluster) -> None:
    early = cluster.join_broker(1)
    client = cluster.client()
    names = {f"topic-{number}" for number in range(1000)}
    created = [
        client.create_async(f"/brokers/topics/{name}", format_topic(topic))
        for name in sorted(names)
        for topic in [Topic(name, uuid4(), ((1,),) * 8, {})]
    ]
    for each in created:
        each.get()
    early.sees(lambda view: view.topics.keys() == names, "all topics")
    late = cluster.join_broker(2)
    assert late.view.topics == early.view.topics
    assert {topic.partitions for topic in late.view.topics.values()} == {8}


def test_a_membership_that_does_not_fit_is_refused_and_the_old_one_stays(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)

    def membership(generation: int, size: int) -> StoredMembership:
        member = StoredMember("m", None, "c", "h", 1, 1, (("range", bytes(size)),), b"")
        return StoredMembership(generation, "consumer", "range", "m", (member,))

    broker.registry.store_membership("g", membership(1, 600_000))
    with pytest.raises(GroupTooLarge, match="'g'"):
        broker.registry.store_membership("g", membership(2, 700_000))
    (group,) = broker.registry.load_groups(coordination_slot("g"))
    assert group.membership == membership(1, 600_000)


LONG_GROUP = "g" * 240
LONG_TOPIC = "t" * 240
"""With both in each path, 2,500 nodes exceed the megabyte that ZooKeeper takes in one request."""


@pytest.mark.long
def test_a_commit_is_done_as_a_whole_or_refused_as_a_whole(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    fits = {(LONG_TOPIC, n): CommittedOffset(n) for n in range(1000)}
    broker.registry.commit_offsets(LONG_GROUP, fits)
    too_many = {(LONG_TOPIC, n): CommittedOffset(7) for n in range(3000)}
    with pytest.raises(GroupTooLarge, match=f"'{LONG_GROUP}'"):
        broker.registry.commit_offsets(LONG_GROUP, too_many)
    (group,) = broker.registry.load_groups(coordination_slot(LONG_GROUP))
    assert group.offsets == fits


@pytest.mark.long
def test_a_large_group_is_deleted_as_well(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    for start in range(0, 3000, 1000):
        offsets = {(LONG_TOPIC, n): CommittedOffset(n) for n in range(start, start + 1000)}
        broker.registry.commit_offsets(LONG_GROUP, offsets)
    broker.registry.delete_group(LONG_GROUP)
    assert cluster.client().get_children("/consumers") == []


def test_a_topic_that_does_not_fit_one_node_is_refused(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    with pytest.raises(InvalidPartitions, match="'t'"):
        broker.registry.create_topic("t", [[1]] * 100_000, {})
    broker.registry.create_topic("t", [[1]], {})
    with pytest.raises(InvalidPartitions, match="'t'"):
        broker.registry.grow_topic("t", [[1]] * 100_000)
    assert broker.view.topic("t").partitions == 1


@pytest.mark.parametrize("address", ["", "host:port", "host:1:2", "/path"])
def test_a_malformed_address_is_rejected_with_the_expected_form(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"allowed is HOST:PORT\[,HOST:PORT...\]\[/PATH\]"):
        ZooKeeperRegistry.open(address, 1, 10.0, "d")


def test_an_address_that_does_not_respond_is_named() -> None:
    port = free_port()
    with pytest.raises(ConfigurationError, match=f"zookeeper is '127.0.0.1:{port}/x'"):
        ZooKeeperRegistry.open(f"127.0.0.1:{port}/x", 1, 60.0, "d")


def test_a_registry_that_was_closed_leaves_no_thread(cluster: Cluster) -> None:
    before = {thread.name for thread in threading.enumerate()}
    member = cluster.join_broker(1)
    member.registry.close()
    until(
        lambda: {thread.name for thread in threading.enumerate()} <= before,
        "every thread has ended",
    )
