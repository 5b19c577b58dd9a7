"""The access control lists of a cluster are in ZooKeeper, and decide on every broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from kafka.protocol.admin.acl import DescribeAclsRequest, DescribeAclsResponse
from kazoo.client import KazooClient

from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.guarded_broker import ANONYMOUS, acl, acl_filter
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

OPTIONS = ("--authorizer", "--super-users", ANONYMOUS)


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: SharedZooKeeper) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), *OPTIONS, count=2) as cluster:
        yield cluster.serve()


def count_at(cluster: BrokerCluster, broker_id: int) -> int:
    """Return how many ACLs a broker reports. Requests of the client may go to any broker."""
    wanted = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with cluster.connection(broker_id) as connection:
        answer = connection.ask(wanted, DescribeAclsResponse, 3)
    assert answer.error_code == 0
    return sum(len(each.acls) for each in answer.resources)


def test_every_broker_applies_a_change_and_keeps_it(cluster: BrokerCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap_servers})
    wanted = [
        acl(ResourceType.TOPIC, name, AclOperation.READ, principal="User:alice")
        for name in ("clicks", "views")
    ]
    for result in admin.create_acls(wanted, request_timeout=DEADLINE_S).values():
        result.result(DEADLINE_S)
    for broker_id in cluster.brokers:
        until(lambda: count_at(cluster, broker_id) == 2, "the ACLs are known")  # noqa: B023
    (deleted,) = admin.delete_acls([acl_filter(ResourceType.TOPIC, "views")]).values()
    assert len(deleted.result(DEADLINE_S)) == 1
    for broker_id in cluster.brokers:
        until(lambda: count_at(cluster, broker_id) == 1, "one ACL is left")  # noqa: B023
    cluster.brokers[2].kill()
    cluster.brokers[2].serve()
    assert count_at(cluster, 2) == 1


def test_an_unreadable_document_leaves_access_to_super_users_only(cluster: BrokerCluster) -> None:
    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        client.set("/logbroker/acls", b"{")
        for broker in cluster.brokers.values():
            broker.until_says("only super users have access")
        client.set("/logbroker/acls", b"")
        until(lambda: count_at(cluster, 1) == 0, "the ACLs are readable again")
    finally:
        client.stop()
        client.close()
