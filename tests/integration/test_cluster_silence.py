"""ZooKeeper is reachable and does not respond: requests get responses, and a broker stops."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_cluster import METADATA_VERSION, BrokerCluster
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.zookeeper import ZooKeeperServer
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until

REQUEST_TIMED_OUT = 7
ASKERS = 30
"""One after the other, each with the patience of a request, they would take five minutes."""


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def cluster(
    tmp_path: Path, own_zookeeper: ZooKeeperServer, metrics_port: int
) -> Iterator[BrokerCluster]:
    """A broker that is alone in its cluster."""
    options = ("--metrics-port", str(metrics_port))
    with BrokerCluster(tmp_path, own_zookeeper.address, *options, count=1) as cluster:
        yield cluster.serve()


def asking(cluster: BrokerCluster, stack: ExitStack) -> list[RawConnection]:
    """Connections on each of which the broker is asked to make a topic."""
    connections = [stack.enter_context(cluster.connection(1)) for _ in range(ASKERS)]
    for number, connection in enumerate(connections):
        connection.socket.settimeout(DEADLINE_S)
        connection.send(metadata(f"topic-{number}"), METADATA_VERSION)
    return connections


def metadata(topic: str) -> Any:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    return MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)


def test_all_requests_get_responses_while_zookeeper_does_not_respond(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    own_zookeeper.pause()
    with ExitStack() as stack:
        for connection in asking(cluster, stack):
            _, answer = connection.receive(MetadataResponse, METADATA_VERSION)
            assert answer.topics[0].error_code == REQUEST_TIMED_OUT


def test_metrics_show_that_zookeeper_is_down_and_up_again(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer, metrics_port: int
) -> None:
    def metric(name: str) -> float:
        return scrape(metrics_port)[f"logbroker_{name}"]

    until(lambda: metric("registry_available") == 1, "ZooKeeper answers")
    assert metric("registered") == 1
    own_zookeeper.pause()
    until(lambda: metric("registry_available") == 0, "ZooKeeper is silent")
    own_zookeeper.resume()
    until(lambda: metric("registry_available") == 1, "ZooKeeper answers again")
    until(lambda: metric("registered") == 1, "the cluster knows the broker")


def test_a_broker_stops_while_zookeeper_does_not_respond_and_requests_are_delayed(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    own_zookeeper.pause()
    with ExitStack() as stack:
        asking(cluster, stack)
        # A later request is answered, so those before it stand in line.
        assert cluster.live_at(1) == [1]
        assert cluster.brokers[1].stop() == 0
    assert "stopped broker_id=1" in cluster.brokers[1].output
    assert "Traceback" not in cluster.brokers[1].output
