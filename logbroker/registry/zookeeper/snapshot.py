"""The nodes that were read from ZooKeeper, and the cluster view derived from them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from logbroker.quotas.entities import NO_QUOTAS, Quotas
from logbroker.registry.cluster import COORDINATION_SLOTS, BrokerEndpoint, ClusterView
from logbroker.registry.topic_table import TopicTable
from logbroker.registry.zookeeper.payloads import Registration
from logbroker.security.authorizer import NO_ACLS, AclIndex
from logbroker.security.users import NO_USERS, Users

NO_FENCE: Final = -2
"""A version that no node has; -1 would match any version."""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A node below `/brokers/ids`; without a registration if it cannot be parsed."""

    registration: Registration | None
    session_id: int
    version: int


@dataclass(frozen=True, slots=True)
class ElectedNode:
    """The broker that holds an elected role, of the controller or of a slot, and its session."""

    broker_id: int | None
    session_id: int


@dataclass(frozen=True, slots=True)
class SlotNode:
    """A coordination slot; every write under it must carry its `fence`."""

    holder: ElectedNode | None = None
    fence: int = NO_FENCE


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes as last read; `unreadable` are names of topics that cannot be parsed.

    `topics` is immutable, and stays the same object as long as no topic changes.
    """

    brokers: Mapping[int, BrokerNode] = field(default_factory=dict)
    topics: TopicTable = field(default_factory=TopicTable)
    unreadable: frozenset[str] = frozenset()
    controller: ElectedNode | None = None
    slots: tuple[SlotNode, ...] = (SlotNode(),) * COORDINATION_SLOTS
    acls: AclIndex = NO_ACLS
    users: Users = NO_USERS
    quotas: Quotas = NO_QUOTAS


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """A broker and its current ZooKeeper session; without a session it owns nothing."""

    broker_id: int
    session_id: int | None


def live_brokers(snapshot: Snapshot, own: BrokerSession) -> dict[int, BrokerEndpoint]:
    """Return every registered broker; `own` counts only if registered in its current session."""
    return {
        broker_id: node.registration.endpoint
        for broker_id, node in sorted(snapshot.brokers.items())
        if node.registration is not None
        and (broker_id != own.broker_id or node.session_id == own.session_id)
    }


def build_view(
    snapshot: Snapshot,
    own: BrokerSession,
    cluster_id: str,
    giving_up: Collection[int] = (),
) -> ClusterView:
    """Return the cluster as seen by one broker, without the slots that it is about to release.

    A role counts only if its holder is registered in the same session. A broker that restarted
    before its old session expired does not hold what that session held.
    """
    live = live_brokers(snapshot, own)

    def live_holder(node: ElectedNode | None) -> int | None:
        if node is None or node.broker_id not in live:
            return None
        same_session = node.session_id == snapshot.brokers[node.broker_id].session_id
        return node.broker_id if same_session else None

    holders = {number: live_holder(slot.holder) for number, slot in enumerate(snapshot.slots)}
    return ClusterView(
        cluster_id=cluster_id,
        controller_id=live_holder(snapshot.controller),
        brokers=MappingProxyType(live),
        topics=snapshot.topics,
        coordinators=MappingProxyType(
            {n: held for n, held in holders.items() if held is not None and n not in giving_up}
        ),
        unreadable=snapshot.unreadable,
        acls=snapshot.acls,
        users=snapshot.users,
        quotas=snapshot.quotas,
    )
