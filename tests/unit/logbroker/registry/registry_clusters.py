"""Registries of each kind, as a cluster that a test may start again and again."""

from pathlib import Path
from typing import Protocol

from logbroker.registry.cluster import COORDINATION_SLOTS, BrokerEndpoint, ClusterView
from logbroker.registry.local.registry import LocalRegistry
from logbroker.registry.registry import Registry
from logbroker.registry.zookeeper.registry import ZooKeeperRegistry
from tests.support.processes.waiting import until

SESSION_TIMEOUT_S = 30.0
"""So long that no machine is busy enough to end a session by it."""

ENDPOINT = BrokerEndpoint(0, "127.0.0.1", 9092)


class RegistryCluster(Protocol):
    """What broker 0 keeps over restarts; `seen` are the views that its last start was handed."""

    seen: list[ClusterView]

    def start(self) -> Registry:
        """The registry as a broker that starts has it; one that was started before is closed."""
        ...

    def close(self) -> None:
        """Close all registries and clients."""
        ...


class LocalCluster:
    """A data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.seen: list[ClusterView] = []

    def start(self) -> Registry:
        registry = LocalRegistry.open(self._data_dir, 0)
        self.seen = []
        registry.join(ENDPOINT, self.seen.append)
        return registry

    def close(self) -> None:
        """Nothing is open."""


class ZooKeeperCluster:
    """A path in a ZooKeeper."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._registry: ZooKeeperRegistry | None = None
        self.seen: list[ClusterView] = []

    def start(self) -> Registry:
        self.close()
        registry = ZooKeeperRegistry.open(self._connect, 0, SESSION_TIMEOUT_S, "directory-0")
        self._registry = registry
        self.seen = []
        registry.join(ENDPOINT, self.seen.append)
        until(lambda: len(registry.view.coordinators) == COORDINATION_SLOTS, "it has all slots")
        until(lambda: registry.view.controller_id == 0, "it is the controller")
        return registry

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()
            self._registry = None
