"""A cluster of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.unit.logbroker.registry.registry_clusters import (
    LocalCluster,
    RegistryCluster,
    ZooKeeperCluster,
)


@pytest.fixture(params=["local", pytest.param("zookeeper", marks=pytest.mark.processes)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RegistryCluster]:
    """A cluster without topics and groups."""
    started: RegistryCluster
    if request.param == "local":
        started = LocalCluster(tmp_path / "data")
    else:
        server: SharedZooKeeper = request.getfixturevalue("zookeeper")
        started = ZooKeeperCluster(server.fresh_chroot())
    yield started
    started.close()
