"""A broker that may not join a cluster exits with one line that gives the reason."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.zookeeper import SharedZooKeeper, ZooKeeperServer
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until


def error_line(broker: BrokerProcess) -> str:
    """Start a broker that does not come up: the one line that it ends with."""
    with broker:
        broker.launch()
        assert broker.wait() == 1
        message = [line for line in broker.output.splitlines() if line.startswith("logbroker: ")]
    assert len(message) == 1, broker.output
    assert "Traceback" not in broker.output
    return message[0]


def until_serves(cluster: BrokerCluster, topic: str) -> None:
    cluster.brokers[1].make_topic(topic)
    cluster.until_leaders(topic, [1], at=[1])


def test_an_address_that_does_not_respond_is_named(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    broker = BrokerProcess(tmp_path / "log", "--zookeeper", address)
    assert address in error_line(broker)


def test_a_server_that_accepts_and_does_not_respond_is_named(
    tmp_path: Path, own_zookeeper: ZooKeeperServer
) -> None:
    own_zookeeper.pause()
    broker = BrokerProcess(tmp_path / "log", "--zookeeper", own_zookeeper.address)
    assert own_zookeeper.address in error_line(broker)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:port", ""])
def test_an_invalid_address_is_named(tmp_path: Path, address: str) -> None:
    broker = BrokerProcess(tmp_path / "log", "--zookeeper", address)
    assert f"'{address}'" in error_line(broker)


@pytest.mark.parametrize("seconds", ["0.5", "601"])
def test_a_session_timeout_out_of_range_is_rejected(tmp_path: Path, seconds: str) -> None:
    options = ("--zookeeper", "127.0.0.1:1", "--zookeeper-session-timeout-s", seconds)
    message = error_line(BrokerProcess(tmp_path / "log", *options))
    assert f"zookeeper_session_timeout_s is {float(seconds)}; allowed is 1 to 600" in message


def test_two_brokers_cannot_have_one_id(tmp_path: Path, zookeeper: SharedZooKeeper) -> None:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=1, session_s=4) as cluster:
        cluster.serve()
        message = error_line(cluster.make_broker(1, "double"))
        assert "broker_id is 1" in message
        assert cluster.brokers[1].bootstrap_servers in message
        assert cluster.live_at(1) == [1]
        until_serves(cluster, "undisturbed")


def test_the_id_of_a_dead_broker_is_free_after_its_session(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2, session_s=6) as cluster:
        cluster.serve()
        cluster.brokers[2].kill()
        with cluster.make_broker(2, "new").serve() as successor:
            address = successor.bootstrap_servers
            until(lambda: cluster.address_at(1, 2) == address, "broker 2 is the new one")


def test_one_data_folder_is_not_for_two_ids(tmp_path: Path, zookeeper: SharedZooKeeper) -> None:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=1) as cluster:
        cluster.serve()
        until_serves(cluster, "events")
        while_it_runs = error_line(cluster.make_broker(2, "broker-1"))
        assert "is in use" in while_it_runs
        cluster.brokers[1].stop()
        afterwards = error_line(cluster.make_broker(2, "broker-1"))
        meta = tmp_path / "broker-1" / "meta.properties"
        assert f"{meta} has broker.id 1; this broker has 2" in afterwards
        # A rejected start changes nothing: the clean marker of the owner still exists.
        assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_one_data_folder_is_not_for_two_clusters(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=1) as cluster:
        cluster.serve().brokers[1].stop()
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=1) as another:
        message = error_line(another.make_broker(1, "broker-1"))
    assert f"{tmp_path / 'broker-1' / 'meta.properties'} has cluster.id " in message
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_logs_are_kept_if_zookeeper_has_lost_all_topics(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    chroot = zookeeper.fresh_chroot()
    with BrokerCluster(tmp_path, chroot, count=1) as cluster:
        cluster.serve()
        until_serves(cluster, "events")
        broker = cluster.brokers[1]
        broker.stop()
        client = KazooClient(chroot, timeout=DEADLINE_S)
        client.start(DEADLINE_S)
        client.delete("/brokers/topics", recursive=True)
        client.stop()
        client.close()
        assert "/brokers/topics is missing" in error_line(broker)
        assert (broker.data_dir / "events-0").exists()


def test_a_folder_belongs_to_a_standalone_broker_or_to_a_cluster(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    alone = BrokerProcess(tmp_path / "alone", "--broker-id", "1", name="alone")
    with alone.serve():
        assert alone.stop() == 0
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=1) as cluster:
        assert (
            f"{tmp_path / 'alone' / 'registry.json'} belongs to a standalone broker"
            in error_line(cluster.make_broker(1, "alone"))
        )
        cluster.serve().brokers[1].stop()
    message = error_line(BrokerProcess(tmp_path / "broker-1", "--broker-id", "1", name="broker-1"))
    assert f"{tmp_path / 'broker-1'} belongs to a cluster" in message
