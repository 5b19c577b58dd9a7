"""Groups on three brokers whose coordinators die, pause and return."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from logbroker.registry.cluster import COORDINATION_SLOTS, coordination_slot
from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.group_recorder import GroupRecorder, send
from tests.support.kafka.raw_group import (
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    RawMember,
    until_groups_loaded,
)
from tests.support.kafka.zookeeper import ZooKeeperServer
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = pytest.mark.long

LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")
PARTITIONS = 6
PLACES = [("events", number) for number in range(PARTITIONS)]
EVENTS = ("events", 0)


@pytest.fixture
def cluster(tmp_path: Path, own_zookeeper: ZooKeeperServer) -> Iterator[BrokerCluster]:
    options = ("--group-initial-rebalance-delay-ms", "0")
    with BrokerCluster(tmp_path, f"{own_zookeeper.address}/rewind", *options) as cluster:
        yield cluster.serve()


def coordinator_at(cluster: BrokerCluster, broker_id: int, group: str) -> int:
    """Return the coordinator's id according to this broker, or -1."""
    request = FindCoordinatorRequest(key=group, key_type=0)
    with cluster.connection(broker_id) as connection:
        node: int = connection.ask(request, FindCoordinatorResponse, 3).node_id
    return node


def until_coordinated(cluster: BrokerCluster, *broker_ids: int) -> None:
    """Wait until these brokers agree that exactly they coordinate groups."""

    def agree() -> bool:
        groups = one_group_per_slot()
        reported = [[coordinator_at(cluster, one, group) for group in groups] for one in broker_ids]
        return all(each == reported[0] for each in reported) and set(reported[0]) == set(broker_ids)

    until(agree, f"{broker_ids} coordinate")
    for broker_id in broker_ids:
        until_groups_loaded(cluster.brokers[broker_id].bootstrap_servers)


def one_group_per_slot() -> list[str]:
    groups = {coordination_slot(f"group-{number}"): f"group-{number}" for number in range(500)}
    assert len(groups) == COORDINATION_SLOTS
    return list(groups.values())


def group_of(cluster: BrokerCluster, broker_id: int) -> str:
    """A group that a broker coordinates."""
    return next(
        group
        for group in one_group_per_slot()
        if coordinator_at(cluster, broker_id, group) == broker_id
    )


def place_events(cluster: BrokerCluster, *broker_ids: int) -> None:
    """Make `events`, whose partitions go to these brokers in turn."""
    placed = [[broker_ids[number % len(broker_ids)]] for number in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic("events", PARTITIONS, replica_assignment=placed)
    admin.create_topics([topic])["events"].result(DEADLINE_S)
    cluster.until_leaders("events", [each for (each,) in placed])


def member_at(
    cluster: BrokerCluster, broker_id: int, group: str, of: RawMember | None = None
) -> RawMember:
    """A connection to a broker, for a new member, or for one that exists."""
    member = RawMember(cluster.brokers[broker_id].bootstrap_servers, group)
    if of is not None:
        member.member_id, member.generation = of.member_id, of.generation
    return member


def until_heartbeat(cluster: BrokerCluster, member: RawMember, brokers: Sequence[int]) -> int:
    """Ask these brokers until one that has loaded the group takes a member's heartbeat: which."""
    found: list[int] = []

    def is_taken() -> bool:
        for broker_id in brokers:
            with member_at(cluster, broker_id, member.group, member) as again:
                # Until then a heartbeat is taken from anybody.
                if again.fetch(None).error_code == NONE and again.heartbeat() == NONE:
                    found.append(broker_id)
        return bool(found)

    until(is_taken, f"a coordinator knows generation {member.generation}")
    return found[0]


def test_coordination_is_spread_and_every_broker_reports_it(cluster: BrokerCluster) -> None:
    until_coordinated(cluster, 1, 2, 3)
    group = group_of(cluster, 2)
    cluster.brokers[1].make_topic("events")
    for broker_id, code in ((1, NOT_COORDINATOR), (2, NONE), (3, NOT_COORDINATOR)):
        with member_at(cluster, broker_id, group) as member:
            assert member.join().error_code == code
            assert member.fetch(None).error_code == code
            assert (member.heartbeat() == NOT_COORDINATOR) == bool(code)


def test_a_group_keeps_its_generation_when_its_coordinator_is_killed(
    cluster: BrokerCluster,
) -> None:
    until_coordinated(cluster, 1, 2, 3)
    place_events(cluster, 1, 2)
    group = group_of(cluster, 3)
    with member_at(cluster, 3, group) as member:
        member.stable()
        assert member.commit({EVENTS: 42}) == {EVENTS: NONE}
        cluster.brokers[3].kill()
    now_at = until_heartbeat(cluster, member, (1, 2))
    with member_at(cluster, now_at, group, member) as again:
        assert again.sync().assignment == b"everything"
        assert again.committed(*EVENTS) == 42
        assert again.commit({EVENTS: 43}) == {EVENTS: NONE}
    cluster.brokers[3].serve()
    until_coordinated(cluster, 1, 2, 3)
    assert until_heartbeat(cluster, member, (3,)) == 3
    with member_at(cluster, 3, group, member) as again:
        assert again.committed(*EVENTS) == 43


def test_a_group_misses_nothing_and_shares_nothing_when_its_coordinator_is_killed(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    until_coordinated(cluster, 1, 2, 3)
    place_events(cluster, 1, 2)
    with GroupRecorder(tmp_path, cluster.bootstrap_servers, group_of(cluster, 3)) as recorder:
        members = [recorder.member(library) for library in LIBRARIES]
        recorder.until_shared(PLACES, *members)
        send(cluster.bootstrap_servers, "events", [f"a{n}" for n in range(60)], PARTITIONS)
        cluster.brokers[3].kill()
        send(cluster.bootstrap_servers, "events", [f"b{n}" for n in range(60)], PARTITIONS)
        recorder.until_read([f"{batch}{n}" for batch in "ab" for n in range(60)])
        members.append(recorder.member("confluent-kafka"))
        recorder.until_shared(PLACES, *members)
        members.pop(0).leave()
        recorder.until_shared(PLACES, *members)
        cluster.brokers[3].serve()
        until_coordinated(cluster, 1, 2, 3)
        send(cluster.bootstrap_servers, "events", [f"c{n}" for n in range(60)], PARTITIONS)
        recorder.until_read([f"c{n}" for n in range(60)])
        members.append(recorder.member("aiokafka"))
        recorder.until_shared(PLACES, *members)
        recorder.check()


def test_a_coordinator_that_was_stopped_for_too_long_changes_nothing(
    cluster: BrokerCluster,
) -> None:
    until_coordinated(cluster, 1, 2, 3)
    place_events(cluster, 1, 2)
    group = group_of(cluster, 3)
    with member_at(cluster, 3, group) as member:
        member.stable()
        cluster.brokers[3].pause()
        now_at = until_heartbeat(cluster, member, (1, 2))
        with member_at(cluster, now_at, group, member) as again:
            assert again.commit({EVENTS: 100}) == {EVENTS: NONE}
        member.send_commit({EVENTS: 1})
        cluster.brokers[3].resume()
        (code,) = member.committed_codes().values()
        assert code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
    until_coordinated(cluster, 1, 2, 3)
    assert until_heartbeat(cluster, member, (3,)) == 3
    with member_at(cluster, 3, group, member) as again:
        assert again.committed(*EVENTS) == 100


def test_group_requests_are_rejected_while_zookeeper_does_not_respond(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    until_coordinated(cluster, 1, 2, 3)
    place_events(cluster, 1, 2, 3)
    group = group_of(cluster, 2)
    with member_at(cluster, 2, group) as member, member_at(cluster, 2, group) as waiting:
        member.stable()
        waiting.send_join(3)
        own_zookeeper.pause()
        assert waiting.joined(3).error_code == COORDINATOR_NOT_AVAILABLE
        assert member.heartbeat() == COORDINATOR_NOT_AVAILABLE
        assert member.commit({EVENTS: 1}) == {EVENTS: COORDINATOR_NOT_AVAILABLE}
        # Partitions are still served: no other broker can lead them.
        send(cluster.bootstrap_servers, "events", ["meanwhile"], 1)
    own_zookeeper.resume()
    until_coordinated(cluster, 1, 2, 3)
    with member_at(cluster, 2, group) as again:
        again.member_id = member.member_id
        until(lambda: again.join().error_code == NONE, "the group works again")
        assert again.generation > member.generation


def test_every_broker_coordinates_for_stock_clients(cluster: BrokerCluster) -> None:
    until_coordinated(cluster, 1, 2, 3)
    place_events(cluster, 1, 2, 3)
    send(cluster.bootstrap_servers, "events", map(str, range(PARTITIONS)), PARTITIONS)
    for broker_id in cluster.brokers:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group_of(cluster, broker_id),
            "auto.offset.reset": "earliest",
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe(["events"])
            found: list[object] = []

            def read(consumer: Consumer = consumer, found: list[object] = found) -> bool:
                messages = consumer.consume(10, 0.1)
                found += [each.value() for each in messages if each.error() is None]
                return len(found) == PARTITIONS

            until(read, "all is read")
            assert {each.offset for each in consumer.commit(asynchronous=False)} == {1}
