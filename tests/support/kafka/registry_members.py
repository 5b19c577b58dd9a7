"""Registries of several brokers in one ZooKeeper cluster, without the brokers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from kazoo.client import KazooClient

from logbroker.registry.cluster import COORDINATION_SLOTS, BrokerEndpoint, ClusterView
from logbroker.registry.zookeeper.registry import ZooKeeperRegistry
from tests.support.processes.waiting import DEADLINE_S, until

UNENDING_S = 60.0
"""A session timeout that only a fault made by a test can reach."""


class RegistryMember:
    """Holds one broker's registry and records every view that it publishes."""

    def __init__(
        self, connect: str, broker_id: int, timeout_s: float, directory_id: str | None = None
    ) -> None:
        self.broker_id = broker_id
        self.endpoint = BrokerEndpoint(broker_id, "127.0.0.1", 9000 + broker_id)
        self.views: list[ClusterView] = []
        self.registry = ZooKeeperRegistry.open(
            connect, broker_id, timeout_s, directory_id or f"directory-{broker_id}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.registry.close()

    def join(self) -> Self:
        self.registry.join(self.endpoint, self.views.append)
        return self

    @property
    def view(self) -> ClusterView:
        return self.registry.view

    @property
    def client_id(self) -> tuple[int, bytes]:
        """The session of this broker, for tests that end it."""
        client_id: tuple[int, bytes] = self.registry._session._client.client_id
        return client_id

    @property
    def slots(self) -> set[int]:
        """The coordination slots that this broker holds, according to its own view."""
        return {slot for slot, holder in self.view.coordinators.items() if holder == self.broker_id}

    def sees(self, condition: Callable[[ClusterView], object], what: str) -> None:
        """Wait until `condition` holds for the view."""
        until(lambda: condition(self.view), f"broker {self.broker_id} sees {what}")


class Cluster:
    """Opens registries with one connection string and closes them at the end."""

    def __init__(self, connect: str, stack: ExitStack) -> None:
        self.connect = connect
        self._stack = stack

    def open_broker(
        self,
        broker_id: int,
        timeout_s: float = UNENDING_S,
        connect: str | None = None,
        directory_id: str | None = None,
    ) -> RegistryMember:
        """Open the registry of a broker that has not joined. `connect` replaces the address."""
        member = RegistryMember(connect or self.connect, broker_id, timeout_s, directory_id)
        return self._stack.enter_context(member)

    def join_broker(self, broker_id: int, timeout_s: float = UNENDING_S) -> RegistryMember:
        """Open the registry of a broker and join the cluster."""
        return self.open_broker(broker_id, timeout_s).join()

    def client(self) -> KazooClient:
        """Return a started ZooKeeper client, rooted at the cluster's path."""
        client = KazooClient(self.connect, timeout=UNENDING_S)
        client.start(DEADLINE_S)
        self._stack.callback(client.close)
        self._stack.callback(client.stop)
        return client


@contextmanager
def cluster_at(connect: str) -> Iterator[Cluster]:
    """Yield a cluster whose registries are closed at the end of the context."""
    with ExitStack() as stack:
        yield Cluster(connect, stack)


def settle(*members: RegistryMember) -> None:
    """Wait until all views agree on the brokers, the controller and a holder for each slot."""
    ids = {member.broker_id for member in members}

    def agree() -> bool:
        views = [member.view for member in members]
        return (
            all(set(view.brokers) == ids and view.controller_id in ids for view in views)
            and all(len(view.coordinators) == COORDINATION_SLOTS for view in views)
            and all(view.coordinators == views[0].coordinators for view in views)
            and set(views[0].coordinators.values()) == ids
        )

    until(agree, f"brokers {ids} agree")
