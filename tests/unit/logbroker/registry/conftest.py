"""A cluster of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from registry_clusters import LocalCluster, RegistryCluster


@pytest.fixture(params=["local"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RegistryCluster]:
    """A cluster without topics and groups."""
    started = LocalCluster(tmp_path / "data")
    yield started
    started.close()
