"""Broker registries when sessions, connections and ZooKeeper servers fail."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from logbroker.errors import NotCoordinator, RegistryUnavailable
from logbroker.groups.stored import CommittedOffset, StoredGroup
from logbroker.registry.cluster import coordination_slot
from logbroker.registry.zookeeper.groups import GroupStore
from tests.support.kafka.registry_members import (
    UNENDING_S,
    Cluster,
    RegistryMember,
    cluster_at,
    settle,
)
from tests.support.kafka.zookeeper import SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperServer
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import until

pytestmark = pytest.mark.long

SHORT_S = 5.0
"""A session timeout that a test waits for."""


@pytest.fixture
def cluster(zookeeper: SharedZooKeeper) -> Iterator[Cluster]:
    """A cluster without brokers."""
    with cluster_at(zookeeper.fresh_chroot()) as opened:
        yield opened


@pytest.fixture
def link(zookeeper: SharedZooKeeper) -> Iterator[TcpLink]:
    """A way to ZooKeeper that can be cut."""
    with TcpLink(zookeeper.port) as opened:
        yield opened


def through(link: TcpLink, cluster: Cluster) -> str:
    """The cluster's connection string by way of a link."""
    return f"{link.address}/{cluster.connect.partition('/')[2]}"


def works(member: RegistryMember) -> bool:
    """Whether the broker can change something."""
    try:
        member.registry.allocate_producer_ids(1)
    except RegistryUnavailable:
        return False
    return True


def views_without_itself(member: RegistryMember) -> int:
    return sum(member.broker_id not in view.brokers for view in member.views)


def test_a_broker_whose_session_is_ended_resigns_and_comes_back(
    zookeeper: SharedZooKeeper, cluster: Cluster
) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    topic = broker.registry.create_topic("t", [[1]], {})
    assert views_without_itself(broker) == 0
    zookeeper.expire_session(broker.client_id)
    until(lambda: views_without_itself(broker), "it resigned")
    settle(broker)
    resigned = next(view for view in broker.views if not view.brokers)
    assert resigned.leader(topic, 0) is None
    assert resigned.controller_id is None
    assert resigned.coordinators == {}
    assert broker.view.leader(topic, 0) == 1
    until(broker.registry.may_coordinate, "it may coordinate again")


def test_a_broker_notices_its_lost_session_before_others_take_over(
    zookeeper: SharedZooKeeper, cluster: Cluster
) -> None:
    first, second = cluster.join_broker(1), cluster.join_broker(2)
    settle(first, second)
    for _ in range(3):
        zookeeper.expire_session(first.client_id)
        until(lambda: 1 in first.view.brokers and works(first), "it is back")
        settle(first, second)
    # Between two views in which it holds a slot there is one in which it holds none.
    assert views_without_itself(first) >= 3
    for view in first.views:
        assert 1 in view.brokers or 1 not in view.coordinators.values()


def test_the_slots_of_a_broker_that_is_cut_off_move_and_it_may_not_use_them(
    cluster: Cluster, link: TcpLink
) -> None:
    first = cluster.open_broker(1, SHORT_S, connect=through(link, cluster)).join()
    settle(first)
    until(first.registry.may_coordinate, "it may coordinate")
    groups = [f"group-{number}" for number in range(40)]
    for group in groups:
        first.registry.commit_offsets(group, {("t", 0): CommittedOffset(1)})
    second = cluster.join_broker(2)
    settle(first, second)
    lost = next(group for group in groups if coordination_slot(group) in first.slots)
    fence = first.registry._follower.fence_of(coordination_slot(lost))
    link.stall()
    second.sees(lambda view: set(view.brokers) == {2}, "that the other is gone")
    # What it cannot know yet, the clock tells it.
    assert not first.registry.may_coordinate()
    assert set(first.view.brokers) == {1, 2}
    settle(second)
    with ThreadPoolExecutor(1) as threads:
        # A write that waits for the connection, as of a thread that knows nothing of the loss.
        store = GroupStore(first.registry._session, lambda _: fence, lambda _: None)
        late = threads.submit(store.commit_offsets, lost, {("t", 0): CommittedOffset(9)})
        link.mend()
        with pytest.raises((NotCoordinator, RegistryUnavailable)):
            late.result()
    settle(first, second)
    assert views_without_itself(first)
    stored = {
        group.group_id: group.offsets
        for member in (first, second)
        for slot in member.slots
        for group in member.registry.load_groups(slot)
    }
    assert stored == {group: {("t", 0): CommittedOffset(1)} for group in groups}


def test_a_write_under_an_old_fence_is_refused(cluster: Cluster) -> None:
    first = cluster.join_broker(1)
    settle(first)
    slot = coordination_slot("g")
    old = first.registry._follower.fence_of(slot)
    first.registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    first.registry.close()
    second = cluster.join_broker(2)
    settle(second)
    assert second.registry._follower.fence_of(slot) > old
    refused: list[int] = []
    late = GroupStore(second.registry._session, lambda _: old, refused.append)
    with pytest.raises(NotCoordinator):
        late.commit_offsets("g", {("t", 0): CommittedOffset(2)})
    assert refused == [slot]
    expected = StoredGroup("g", None, {("t", 0): CommittedOffset(1)})
    assert second.registry.load_groups(slot) == [expected]


def test_a_slot_with_a_changed_fence_is_claimed_again(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    slot = coordination_slot("g")
    broker.registry.load_groups(slot)
    seen = len(broker.views)
    cluster.client().set(f"/logbroker/coordination/{slot}", b"by hand")
    with pytest.raises(NotCoordinator):
        broker.registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})

    def was_lost() -> bool:
        return any(slot not in view.coordinators for view in broker.views[seen:])

    until(was_lost, "it gave the slot up")
    settle(broker)
    broker.registry.load_groups(slot)
    broker.registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})


def test_a_slot_that_was_lost_and_won_again_has_to_be_read_again(
    zookeeper: SharedZooKeeper, cluster: Cluster
) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    slot = coordination_slot("g")
    broker.registry.load_groups(slot)
    zookeeper.expire_session(broker.client_id)
    until(lambda: views_without_itself(broker), "it resigned")
    settle(broker)
    with pytest.raises(NotCoordinator):
        broker.registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    assert broker.registry.load_groups(slot) == []
    broker.registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})


def test_a_lease_expires_while_the_machine_sleeps(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the boot clock advances during sleep, as ZooKeeper's own clock does."""
    broker = cluster.join_broker(1)
    until(broker.registry.may_coordinate, "it may coordinate")
    awake = time.clock_gettime

    def clock_after_sleep(clock: int) -> float:
        return awake(clock) + (UNENDING_S / 2 if clock == time.CLOCK_BOOTTIME else 0)

    monkeypatch.setattr(time, "clock_gettime", clock_after_sleep)
    assert not broker.registry.may_coordinate()


def test_a_killed_broker_that_starts_again_need_not_wait_for_its_old_session(
    cluster: Cluster, link: TcpLink
) -> None:
    killed = cluster.open_broker(1, connect=through(link, cluster)).join()
    settle(killed)
    session = killed.client_id
    link.stall()  # all that ZooKeeper sees of a kill while a timeout runs
    again = cluster.open_broker(1).join()
    settle(again)
    assert again.client_id != session
    assert views_without_itself(again) == 0


def test_a_broker_with_a_copy_of_the_folder_replaces_the_first(cluster: Cluster) -> None:
    original = cluster.open_broker(1, directory_id="copied").join()
    settle(original)
    copy = cluster.open_broker(1, directory_id="copied").join()
    settle(copy)
    original.sees(lambda view: not view.brokers and not view.coordinators, "that it resigned")
    assert views_without_itself(copy) == 0
    copy.registry.close()
    settle(original)


def test_a_broker_that_waited_for_the_end_of_a_session_gets_its_id(
    cluster: Cluster, link: TcpLink
) -> None:
    dead = cluster.open_broker(1, SHORT_S, connect=through(link, cluster)).join()
    settle(dead)
    link.stall()
    # Its data directory was replaced, so it cannot know the old process for dead.
    again = cluster.open_broker(1, directory_id="new-directory").join()
    settle(again)


def test_a_registration_that_was_removed_by_hand_is_made_again(cluster: Cluster) -> None:
    broker = cluster.join_broker(1)
    settle(broker)
    client = cluster.client()
    for path in ("/brokers/ids/1", "/controller", "/logbroker/coordination/3/holder"):
        client.delete(path)
        until(partial(client.exists, path), f"{path} is there again")
    settle(broker)


def test_brokers_continue_after_zookeeper_is_killed_and_restarted(
    own_zookeeper: ZooKeeperServer,
) -> None:
    with cluster_at(f"{own_zookeeper.address}/logs") as cluster:
        first, second = cluster.join_broker(1), cluster.join_broker(2)
        settle(first, second)
        topic = first.registry.create_topic("t", [[1]], {})
        first.registry.allocate_producer_ids(10)
        seen = len(first.views)
        own_zookeeper.kill()
        with pytest.raises(RegistryUnavailable, match=f"ZooKeeper at {own_zookeeper.address}"):
            first.registry.allocate_producer_ids(1)
        # A broker keeps its leadership while ZooKeeper is unreachable.
        assert len(first.views) == seen
        assert first.view.leader(topic, 0) == 1
        own_zookeeper.start()
        until(lambda: works(first) and works(second), "both can change something")
        grown = second.registry.grow_topic("t", [[1], [2]])
        first.sees(lambda view: view.topics == {"t": grown}, "what happened since")
        settle(first, second)
        assert views_without_itself(first) == 0


def test_changes_during_a_loss_of_the_connection_are_seen_after_it(
    cluster: Cluster, link: TcpLink
) -> None:
    behind = cluster.open_broker(1, connect=through(link, cluster)).join()
    other = cluster.join_broker(2)
    kept = other.registry.create_topic("kept", [[2]], {})
    other.registry.create_topic("gone", [[2]], {})
    behind.sees(lambda view: len(view.topics) == 2, "both topics")
    link.cut()
    other.registry.delete_topic("gone")
    new = other.registry.create_topic("new", [[2]], {})
    changed = other.registry.change_settings("kept", lambda _: {"retention.ms": "5"})
    assert behind.view.topics["kept"] == kept
    link.mend()
    behind.sees(lambda view: view.topics == {"kept": changed, "new": new}, "all changes")


def test_a_connection_that_is_never_answered_is_not_waited_for(
    cluster: Cluster, link: TcpLink
) -> None:
    behind = cluster.open_broker(1, 4 * UNENDING_S, connect=through(link, cluster)).join()
    other = cluster.join_broker(2)
    link.ignore()
    until(lambda: link.ignored, "a connection that ZooKeeper will not answer")
    link.mend()
    new = other.registry.create_topic("new", [[2]], {})
    # Long before the session could end, in which kazoo would wait for the answer.
    behind.sees(lambda view: view.topics == {"new": new}, "the change")


# kazoo's thread ends by it, which is what the test is about.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_peer_that_talks_nonsense_ends_the_connection_and_not_the_registry(
    cluster: Cluster, link: TcpLink
) -> None:
    broker = cluster.open_broker(1, connect=through(link, cluster)).join()
    settle(broker)
    # A complete response to a request that was never sent.
    link.say_to_clients((16).to_bytes(4, "big") + bytes(16))
    until(lambda: len(broker.views) > 1 and views_without_itself(broker), "the session is over")
    settle(broker)
    assert works(broker)


def test_a_registry_closes_although_zookeeper_does_not_answer(
    cluster: Cluster, link: TcpLink
) -> None:
    broker = cluster.open_broker(1, connect=through(link, cluster)).join()
    link.stall()
    broker.registry.close()


def test_an_ensemble_continues_without_its_leader(zookeeper_ensemble: ZooKeeperEnsemble) -> None:
    with cluster_at(f"{zookeeper_ensemble.address}/logs") as cluster:
        first, second = cluster.join_broker(1), cluster.join_broker(2)
        settle(first, second)
        topic = first.registry.create_topic("t", [[1]], {})
        slot = next(iter(first.slots))
        group = next(f"g{n}" for n in range(1000) if coordination_slot(f"g{n}") == slot)
        first.registry.commit_offsets(group, {("t", 0): CommittedOffset(1)})
        zookeeper_ensemble.leader.kill()
        until(lambda: works(first) and works(second), "both can change something")
        grown = second.registry.grow_topic("t", [[1], [2]])
        assert grown.topic_id == topic.topic_id
        first.sees(lambda view: view.topics == {"t": grown}, "what happened since")
        settle(first, second)
        (stored,) = first.registry.load_groups(slot)
        assert stored.offsets == {("t", 0): CommittedOffset(1)}
