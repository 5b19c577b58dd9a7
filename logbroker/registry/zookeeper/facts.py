"""What was read from ZooKeeper, and the view of the cluster that follows from it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from logbroker.registry.cluster import COORDINATION_SLOTS, BrokerEndpoint, ClusterView
from logbroker.registry.topic import Topic
from logbroker.registry.zookeeper.payloads import Registration

NO_FENCE: Final = -2
"""A version that no node has; -1 would stand for any."""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A node below `/brokers/ids`; one that nobody can read has no registration."""

    registration: Registration | None
    session_id: int
    version: int


@dataclass(frozen=True, slots=True)
class OfficeNode:
    """Who holds an office, the controller's or that of a slot, and in which session."""

    broker_id: int | None
    session_id: int


@dataclass(frozen=True, slots=True)
class SlotNode:
    """A coordination slot; `fence` is what every write under it has to know."""

    holder: OfficeNode | None = None
    fence: int = NO_FENCE


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is there now, whoever wrote it; `unreadable` are names of topics.

    `topics` cannot be changed, and stays the same object as long as no topic changes.
    """

    brokers: Mapping[int, BrokerNode] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    unreadable: frozenset[str] = frozenset()
    controller: OfficeNode | None = None
    slots: tuple[SlotNode, ...] = (SlotNode(),) * COORDINATION_SLOTS


@dataclass(frozen=True, slots=True)
class Seat:
    """From whose place the facts are looked at; without a session nothing is its own."""

    broker_id: int
    session_id: int | None


def live_brokers(facts: Facts, seat: Seat) -> dict[int, BrokerEndpoint]:
    """Every broker that is registered, this one only in the session that it has now."""
    return {
        broker_id: node.registration.endpoint
        for broker_id, node in sorted(facts.brokers.items())
        if node.registration is not None
        and (broker_id != seat.broker_id or node.session_id == seat.session_id)
    }


def view_of(
    facts: Facts, seat: Seat, cluster_id: str, giving_up: Collection[int] = ()
) -> ClusterView:
    """The cluster from one seat, without the slots that it is about to give up.

    An office counts only if its holder is registered in the same session: one that died and
    came back before its old session ended does not hold what that session held.
    """
    live = live_brokers(facts, seat)

    def in_office(node: OfficeNode | None) -> int | None:
        if node is None or node.broker_id not in live:
            return None
        same_session = node.session_id == facts.brokers[node.broker_id].session_id
        return node.broker_id if same_session else None

    holders = {number: in_office(slot.holder) for number, slot in enumerate(facts.slots)}
    return ClusterView(
        cluster_id=cluster_id,
        controller_id=in_office(facts.controller),
        brokers=MappingProxyType(live),
        topics=facts.topics,
        coordinators=MappingProxyType(
            {n: held for n, held in holders.items() if held is not None and n not in giving_up}
        ),
        unreadable=facts.unreadable,
    )
