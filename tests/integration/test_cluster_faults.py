"""Brokers and ZooKeeper die, pause and return: acknowledged records are read again."""

import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse
from kazoo.client import KazooClient

from tests.support.kafka.broker_cluster import NO_LEADER, SESSION_S, BrokerCluster
from tests.support.kafka.partition_clients import PARTITION_CLIENTS, ConfluentPartitions, Values
from tests.support.kafka.raw_connection import ACKS_ALL, batch_of
from tests.support.kafka.zookeeper import ZooKeeperServer
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = pytest.mark.long

NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
PARTITIONS = 6
IN_FLIGHT_MAX = 5
"""With `LINGER_MS` some hundred values a second: more would only keep processors busy."""

LINGER_MS = 50
LEADERS = [1, 2, 3, 1, 2, 3]


@pytest.fixture
def cluster(tmp_path: Path, own_zookeeper: ZooKeeperServer) -> Iterator[BrokerCluster]:
    """Three brokers, each of which has two partitions of `events`."""
    with BrokerCluster(tmp_path, f"{own_zookeeper.address}/rewind") as cluster:
        cluster.serve()
        cluster.brokers[1].make_topic("events", PARTITIONS)
        cluster.until_leaders("events", LEADERS)
        yield cluster


class SteadyProducer:
    """A librdkafka producer that sends until it is stopped.

    `acknowledged` has the values that the brokers promised to keep, by partition.
    """

    def __init__(self, cluster: BrokerCluster) -> None:
        self.acknowledged: Values = {partition: [] for partition in range(PARTITIONS)}
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "message.timeout.ms": int(DEADLINE_S * 1000),
            }
        )
        self._on_their_way = [0] * PARTITIONS
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait for what is on its way."""
        self._is_stopping.set()
        self._thread.join()

    @property
    def counts(self) -> dict[int, int]:
        """How many values of each partition are promised."""
        return {partition: len(values) for partition, values in self.acknowledged.items()}

    def until_acknowledged_again(self, *partitions: int) -> None:
        """Wait until more is promised in each of these partitions."""
        before = self.counts
        until(
            lambda: all(self.counts[each] > before[each] for each in partitions),
            f"something new is acknowledged in partitions {partitions}",
        )

    def _send(self) -> None:
        number = 0
        while not self._is_stopping.is_set():
            number += 1
            partition = number % PARTITIONS
            # What a leaderless partition does not take must not hold up the others.
            if self._on_their_way[partition] < IN_FLIGHT_MAX:
                self._on_their_way[partition] += 1
                self._producer.produce(
                    "events", b"%d" % number, partition=partition, on_delivery=self._delivered
                )
            self._producer.poll(0.005)
        assert self._producer.flush(DEADLINE_S) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        self._on_their_way[message.partition()] -= 1
        if error is None:
            self.acknowledged[message.partition()].append(message.value())


@contextmanager
def producing(cluster: BrokerCluster) -> Iterator[SteadyProducer]:
    producer = SteadyProducer(cluster)
    producer.start()
    try:
        producer.until_acknowledged_again(*range(PARTITIONS))
        yield producer
    finally:
        producer.stop()


def read_all(cluster: BrokerCluster, counts: Mapping[int, int]) -> Values:
    return ConfluentPartitions(cluster.bootstrap_servers).read("events", counts)


def assert_nothing_is_lost(cluster: BrokerCluster, producer: SteadyProducer) -> None:
    """Every promised value is there, once and in order; others may be between them."""
    for partition, values in producer.acknowledged.items():
        client = ConfluentPartitions(cluster.bootstrap_servers)
        found = client.read_to_end("events", partition)
        kept = set(values)
        assert [value for value in found if value in kept] == values


@pytest.mark.parametrize("library", PARTITION_CLIENTS)
def test_clients_continue_without_a_dead_broker_and_read_all_after_its_return(
    cluster: BrokerCluster, library: str
) -> None:
    # By one that stays: kafka-python leaks the socket of a connection that is refused.
    client = PARTITION_CLIENTS[library](cluster.brokers[1].bootstrap_servers)
    before = {n: [b"before %d" % n] for n in range(PARTITIONS)}
    client.produce("events", before)
    cluster.brokers[2].kill()
    leaders = [1, NO_LEADER, 3, 1, NO_LEADER, 3]
    cluster.until_leaders("events", leaders, at=[1, 3])
    alive = [n for n, leader in enumerate(leaders) if leader != NO_LEADER]
    during = {n: [b"during %d" % n] for n in alive}
    client.produce("events", during)
    assert client.read("events", dict.fromkeys(alive, 2)) == {
        n: before[n] + during[n] for n in alive
    }

    cluster.brokers[2].serve()
    cluster.until_leaders("events", LEADERS)
    after = {n: [b"after %d" % n] for n in range(PARTITIONS)}
    client.produce("events", after)
    wanted = {n: before[n] + during.get(n, []) + after[n] for n in range(PARTITIONS)}
    assert client.read("events", {n: len(values) for n, values in wanted.items()}) == wanted


def test_a_producer_outlives_brokers_that_are_killed_one_after_the_other(
    cluster: BrokerCluster,
) -> None:
    with producing(cluster) as producer:
        for broker_id in (2, 3, 1):
            broker = cluster.brokers[broker_id]
            broker.kill()
            # At once: the session that it had still lives, and so do its nodes.
            broker.serve()
            cluster.until_leaders("events", LEADERS)
            producer.until_acknowledged_again(*range(PARTITIONS))
    assert_nothing_is_lost(cluster, producer)


def test_a_broker_that_stops_cleanly_is_deregistered_at_once(
    tmp_path: Path, own_zookeeper: ZooKeeperServer
) -> None:
    # The session is so long that its expiry cannot be what triggers the change.
    with BrokerCluster(tmp_path, own_zookeeper.address, count=2, session_s=100) as cluster:
        cluster.serve()
        assert cluster.brokers[2].stop() == 0
        cluster.until_live(1)


def test_topic_changes_during_a_brokers_downtime_are_applied_at_its_start(
    cluster: BrokerCluster,
) -> None:
    for name in ("deleted", "again", "grown"):
        cluster.brokers[1].make_topic(name, 3)
        cluster.until_leaders(name, cluster.first_leaders_at(1, name))
    leaders = cluster.leaders_at(1, "grown")
    client = ConfluentPartitions(cluster.bootstrap_servers)
    old = {n: [b"old"] for n in range(3)}
    for name in ("deleted", "again", "grown"):
        client.produce(name, old)
    down = cluster.brokers[2]
    down.kill()
    cluster.until_live(1, 3)

    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap_servers})
    for asked in (
        admin.delete_topics(["deleted", "again"]),
        admin.create_partitions([NewPartitions("grown", 4, replica_assignment=[[3]])]),
    ):
        for future in asked.values():
            future.result(DEADLINE_S)
    cluster.brokers[1].make_topic("again", 2)
    cluster.until_leaders("again", cluster.first_leaders_at(1, "again"), at=[1, 3])

    down.serve()
    until(lambda: cluster.leaders_at(2, "events") == LEADERS, "it is back")
    assert not list(down.data_dir.glob("deleted-*"))
    assert not list(down.data_dir.glob("again-*"))
    cluster.until_leaders("grown", [*leaders, 3])
    assert client.read("grown", dict.fromkeys(range(3), 1)) == old
    new = {n: [b"new"] for n in range(2)}
    client.produce("again", new)
    assert client.read("again", dict.fromkeys(range(2), 1)) == new


def test_logs_are_served_while_zookeeper_is_down_and_nothing_acknowledged_is_lost(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    with producing(cluster) as producer:
        own_zookeeper.kill()
        producer.until_acknowledged_again(*range(PARTITIONS))
        own_zookeeper.start()
        producer.until_acknowledged_again(*range(PARTITIONS))
        # A change is asked for and followed again.
        cluster.until_live(1, 2, 3)
        until(lambda: made(cluster, "later"), "topics can be created again")
        cluster.until_leaders("events", LEADERS)
        producer.until_acknowledged_again(*range(PARTITIONS))
    assert_nothing_is_lost(cluster, producer)


def made(cluster: BrokerCluster, topic: str) -> bool:
    """Create a topic if ZooKeeper lets a broker do so; whether it is there."""
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap_servers})
    return admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].error is None


def test_without_zookeeper_a_new_topic_is_rejected_and_the_broker_continues(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    own_zookeeper.kill()
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap_servers})
    client = ConfluentPartitions(cluster.bootstrap_servers)
    asked = admin.create_partitions([NewPartitions("events", 12)])
    values = {n: [b"one"] for n in range(PARTITIONS)}
    client.produce("events", values)
    assert client.read("events", dict.fromkeys(range(PARTITIONS), 1)) == values
    assert asked["events"].exception(DEADLINE_S) is not None


def test_a_broker_whose_session_ended_leads_nothing_until_it_is_registered_again(
    cluster: BrokerCluster,
) -> None:
    sleeper = cluster.brokers[2]
    with producing(cluster) as producer:
        sleeper.pause()
        gone = [1, NO_LEADER, 3, 1, NO_LEADER, 3]
        cluster.until_leaders("events", gone, at=[1, 3])
        producer.until_acknowledged_again(0, 2, 3, 5)
        sleeper.resume()
        cluster.until_leaders("events", LEADERS)
        producer.until_acknowledged_again(*range(PARTITIONS))
    assert "lost registration cluster" in sleeper.output
    # More often if the machine was slow later, too.
    assert sleeper.output.count("joined cluster") >= 2
    assert_nothing_is_lost(cluster, producer)


def test_a_zookeeper_outage_longer_than_the_sessions_loses_nothing(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    with producing(cluster) as producer:
        own_zookeeper.pause()
        over_s = time.monotonic() + 2 * SESSION_S
        until(lambda: time.monotonic() > over_s, "the sessions' time is up")
        producer.until_acknowledged_again(*range(PARTITIONS))
        own_zookeeper.resume()
        until(lambda: made(cluster, "later"), "topics can be created again")
        cluster.until_leaders("events", LEADERS)
        producer.until_acknowledged_again(*range(PARTITIONS))
    assert_nothing_is_lost(cluster, producer)


def test_delayed_requests_fail_when_a_broker_loses_its_session(
    cluster: BrokerCluster,
) -> None:
    sleeper = cluster.brokers[2]
    with cluster.connection(2) as connection:
        connection.fetch("events", 0, max_wait_ms=300_000, partition=1)
        # On another connection, so it is answered once the broker has the request before it.
        cluster.live_at(2)
        sleeper.pause()
        cluster.until_leaders("events", [1, NO_LEADER, 3, 1, NO_LEADER, 3], at=[1, 3])
        sleeper.resume()
        assert connection.fetched().error_code == NOT_LEADER_OR_FOLLOWER
    cluster.until_leaders("events", LEADERS)
    with cluster.connection(2) as connection:
        connection.produce("events", batch_of(b"one"), acks=ACKS_ALL, partition=1)
        assert connection.produced()[1:] == (0, 0)


def test_a_zookeeper_that_lost_everything_does_not_make_brokers_remove_their_logs(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    own_zookeeper.kill()
    stored = tmp_path / "zookeeper" / "version-2"
    shutil.rmtree(stored)
    stored.mkdir()
    own_zookeeper.start()
    # A broker that starts now creates a cluster without topics.
    with cluster.make_broker(9, "founder").serve() as founder:
        (cluster_id,) = re.findall(r"joined cluster=(\S+)", founder.output)
        grow_older(own_zookeeper)
        for broker in cluster.brokers.values():
            broker.until_says(f"left the cluster: ZooKeeper has cluster {cluster_id}")
            assert len(list(broker.data_dir.glob("events-?"))) == 2
            assert broker.exit_code is None
        # From there it would get ids that producers of its own cluster have.
        assert producer_id_refusal(cluster, 1) == REQUEST_TIMED_OUT


def producer_id_refusal(cluster: BrokerCluster, broker_id: int) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    with cluster.connection(broker_id) as connection:
        return int(connection.ask(request, InitProducerIdResponse, 1).error_code)


def grow_older(server: ZooKeeperServer) -> None:
    """Have so many changes made that clients of a former life do not turn away any more."""
    client = KazooClient(server.address)
    client.start(DEADLINE_S)
    for made in [client.create_async("/change", sequence=True) for _ in range(2_000)]:
        made.get(DEADLINE_S)
    client.stop()
    client.close()
