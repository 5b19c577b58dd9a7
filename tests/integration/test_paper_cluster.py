"""The paper's producer and consumers on a cluster of brokers, whose ZooKeeper they share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from logbroker.consumer import Producer
from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.paper_group import (
    Flow,
    PaperConsumer,
    check_deliveries,
    make_topic,
    until_handed,
)
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

TOPIC = "clicks"
NEVER_S = 10_000.0


@pytest.fixture
def cluster(zookeeper: SharedZooKeeper, tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2) as cluster:
        yield cluster.serve()


def consumer(name: str, cluster: BrokerCluster, folder: Path) -> PaperConsumer:
    return PaperConsumer(
        name,
        folder,
        TOPIC,
        zookeeper=cluster.zookeeper,
        group_id="readers",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="smallest",
        # Whatever is found is found by the brokers' registry.
        partition_poll_s=NEVER_S,
    )


def test_a_topic_that_grows_is_found_by_the_brokers_registry(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap_servers, TOPIC, 2)
    with consumer("one", cluster, tmp_path) as one, consumer("two", cluster, tmp_path) as two:
        one.join()
        two.join()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(TOPIC, 6)])[TOPIC].result(DEADLINE_S)
        # A producer keeps the number of partitions for minutes, once it has asked a broker.
        until(
            lambda: all(len(cluster.leaders_at(each, TOPIC)) == 6 for each in cluster.brokers),
            "both brokers know the partitions",
        )
        with Flow(cluster.bootstrap_servers, TOPIC) as flow:
            until(
                lambda: {each.partition for each in one.handed + two.handed} == set(range(6)),
                "all partitions are read",
            )
        until_handed(flow.sent, [one, two])
        check_deliveries([one, two])


def test_consumers_continue_when_a_broker_leaves_and_returns(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap_servers, TOPIC, 4)
    by_number = Producer(cluster.bootstrap_servers, partitioner=lambda key, _: int(key))

    def send(broker_id: int, value: str) -> None:
        partition = leaders.index(broker_id)
        sending = by_number.send(TOPIC, [value.encode()], b"%d" % partition)
        sending.result(DEADLINE_S)

    with by_number, consumer("one", cluster, tmp_path) as one:
        leaders = cluster.first_leaders_at(1, TOPIC)
        one.join()
        send(1, "a")
        send(2, "b")
        until_handed({"a", "b"}, [one])
        cluster.brokers[2].kill()
        send(1, "c")
        until_handed({"c"}, [one])
        with consumer("two", cluster, tmp_path) as two:
            two.join()
            send(1, "d")
            until_handed({"d"}, [one, two])
            cluster.brokers[2].serve()
            send(2, "e")
            until_handed({"e"}, [one, two])
            check_deliveries([one, two])
