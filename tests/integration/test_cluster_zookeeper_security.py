"""Brokers whose ZooKeeper has TLS, users and access control lists."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.support.http.certificates import self_signed
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.kafka.zookeeper import ZooKeeperServer, require_zookeeper
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = pytest.mark.long

PASSWORD = "s3cret"


def test_nodes_over_tls_belong_to_the_user_of_the_brokers(tmp_path: Path) -> None:
    require_zookeeper()
    certificate = self_signed(tmp_path, "localhost")
    config = tmp_path / "zookeeper.properties"
    config.write_text(
        "zookeeper.digest.username=broker\n"
        f"zookeeper.digest.password={PASSWORD}\n"
        "zookeeper.set.acl=true\n"
        "zookeeper.ssl.client.enable=true\n"
        f"zookeeper.ssl.truststore.location={certificate.certificate}\n"
    )
    server = ZooKeeperServer(tmp_path / "zookeeper", certificate=certificate)
    server.start()
    try:
        connect = f"localhost:{server.tls_port}/log"
        security = ("--zookeeper", connect, "--zookeeper-config", str(config))
        with BrokerProcess(tmp_path / "log", *security) as broker:
            broker.serve()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            created = admin.create_topics([NewTopic("clicks", 1)], request_timeout=DEADLINE_S)
            created["clicks"].result(DEADLINE_S)
            assert nodes_without_acl(server) == []
            groups = logbroker_command(broker.bootstrap_servers, "groups")
            # A broker that is new as a coordinator loads its groups first.
            until(lambda: groups("list", *security).returncode == 0, "the groups are listed")
            assert PASSWORD not in broker.output
        without_user = BrokerProcess(tmp_path / "other", "--zookeeper", f"{server.address}/log")
        with without_user:
            without_user.launch()
            assert without_user.wait() == 1
            assert "NoAuthError" in without_user.output
    finally:
        server.kill()


def nodes_without_acl(server: ZooKeeperServer) -> list[str]:
    """The nodes of the brokers that a client without a user can read."""
    client = KazooClient(server.address, timeout=DEADLINE_S)
    client.start()
    try:
        pending, found = ["/log"], list[str]()
        while pending:
            path = pending.pop()
            try:
                pending += [f"{path}/{name}" for name in client.get_children(path)]
            except NoAuthError:
                continue
            found.append(path)
        with pytest.raises(NoAuthError):
            client.delete("/log", recursive=True)
        return found
    finally:
        client.stop()
        client.close()
