"""Registries of each kind, as a cluster that a test may start again and again."""

from pathlib import Path
from typing import Protocol

from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.local.registry import LocalRegistry
from logbroker.registry.registry import Registry

ENDPOINT = BrokerEndpoint(0, "127.0.0.1", 9092)


class RegistryCluster(Protocol):
    """What broker 0 keeps over restarts; `seen` are the views that its last start was handed."""

    seen: list[ClusterView]

    def start(self) -> Registry:
        """The registry as a broker that starts has it; one that was started before is closed."""
        ...

    def close(self) -> None:
        """Let go of everything."""
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
