"""What every test may ask for: a broker, a database of each kind, a whole service."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.database.mariadb import MariaDbServer, require_mariadb
from tests.support.kafka.apache_kafka import KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.zookeeper import (
    SharedZooKeeper,
    ZooKeeperEnsemble,
    ZooKeeperServer,
    require_zookeeper,
)
from tests.support.processes.fork_server import fork_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine takes its time; no test here is about time.
# Half of the library's hundred examples: each run has others, and everybody runs them often.
settings.register_profile("untimed", deadline=None, max_examples=50)
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def end_of_fork_server() -> Iterator[None]:
    """At the end of all tests, end the process that our programs are forked from."""
    yield
    fork_server.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of our own on a free port, with its data in the test's folder."""
    # Nobody here waits for a second member of a group.
    options = ("--stop-on-stdin-close", "--group-initial-rebalance-delay-ms", "0")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        yield broker.serve()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """One MariaDB server for all tests of this process."""
    require_mariadb()
    server = MariaDbServer()
    server.start(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once on SQLite and once on MariaDB."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/rewind.db"
    server: MariaDbServer = request.getfixturevalue("mariadb")
    return server.create_database()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One Apache Kafka for all tests of this process, with the topics that they make in it."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedZooKeeper]:
    """One ZooKeeper for all tests of this process; each takes a `fresh_chroot()`."""
    require_zookeeper()
    server = SharedZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that a test may kill, pause and restart."""
    require_zookeeper()
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def zookeeper_ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    """Three ZooKeepers, of which a test may kill one."""
    require_zookeeper()
    ensemble = ZooKeeperEnsemble(tmp_path / "ensemble")
    ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One session for all tests of this process: they carry `xdist_group("spark")`."""
    # Half a second, which tests of other rooms do without.
    from tests.support.spark.spark_session import running_spark

    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
