"""Fixtures of logbroker, Apache Kafka and ZooKeeper."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http.certificates import self_signed
from tests.support.kafka.apache_kafka import KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.kafka_commands import KafkaCommands
from tests.support.kafka.raw_group import until_groups_loaded
from tests.support.kafka.zookeeper import (
    SharedZooKeeper,
    ZooKeeperEnsemble,
    ZooKeeperServer,
    require_zookeeper,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a logbroker process on a free port, with its data in the test's folder."""
    # Groups have one member, so there is no reason to wait for more.
    options = ("--stop-on-stdin-close", "--group-initial-rebalance-delay-ms", "0")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve()
        until_groups_loaded(broker.bootstrap_servers)
        yield broker


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Yield one Apache Kafka for all tests of this process."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Yield one Apache Kafka with TLS, users and ACLs for all tests of this process.

    Each module has topics of its own.
    """
    certificate = self_signed(tmp_path_factory.mktemp("tls"), "127.0.0.1").both
    with KafkaServer(tmp_path_factory.mktemp("secured-kafka"), certificate) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCommands]:
    """Yield Kafka's commands, for all tests of this process."""
    commands = KafkaCommands(tmp_path_factory.mktemp("kafka-commands"))
    yield commands
    commands.stop()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedZooKeeper]:
    """Yield one ZooKeeper for all tests of this process. Each test uses a `fresh_chroot()`."""
    require_zookeeper()
    server = SharedZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """Yield a ZooKeeper that a test may kill, pause and restart."""
    require_zookeeper()
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def zookeeper_ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    """Yield an ensemble of three ZooKeepers, of which a test may kill one."""
    require_zookeeper()
    ensemble = ZooKeeperEnsemble(tmp_path / "ensemble")
    ensemble.start()
    yield ensemble
    ensemble.stop()
