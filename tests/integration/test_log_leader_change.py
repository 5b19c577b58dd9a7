"""The log's clients when the leader of a partition changes."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from app.domain.model import OffsetRange, Window
from app.log.errors import LogUnavailable
from app.log.history import LogHistory
from app.log.topics import DELIVERY_LOG
from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

TIMEOUT_S = 2.0
"""What one look-up that asks a dead leader takes."""


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: SharedZooKeeper) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2) as cluster:
        yield cluster.serve()


def lead(cluster: BrokerCluster, leader: int) -> None:
    """Recreate the topic, with its partition on this broker."""
    admin = AdminClient({"bootstrap.servers": cluster.brokers[2].bootstrap_servers})
    if DELIVERY_LOG in admin.list_topics(timeout=DEADLINE_S).topics:
        admin.delete_topics([DELIVERY_LOG])[DELIVERY_LOG].result(DEADLINE_S)
    topic = NewTopic(DELIVERY_LOG, 1, replica_assignment=[[leader]])
    admin.create_topics([topic])[DELIVERY_LOG].result(DEADLINE_S)
    cluster.until_leaders(DELIVERY_LOG, [leader], at=[2])


def test_offsets_are_asked_of_the_new_leader_when_the_old_one_is_dead(
    cluster: BrokerCluster,
) -> None:
    lead(cluster, 1)
    cluster.until_leaders(DELIVERY_LOG, [1])
    history = LogHistory(cluster.bootstrap_servers, timeout_s=TIMEOUT_S)

    def is_found() -> bool:
        with suppress(LogUnavailable):
            return history.offsets_for("wh_1", Window(1, 2), 0) == OffsetRange(0, 0, 0)
        return False

    until(is_found, "the first leader answers")
    cluster.brokers[1].kill()
    cluster.until_live(2)
    lead(cluster, 2)
    until(is_found, "the second leader is asked")
