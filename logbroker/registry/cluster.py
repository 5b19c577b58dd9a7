"""The cluster as one broker sees it at one moment."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, Self
from uuid import UUID, uuid4

from logbroker.errors import UnknownTopicId, UnknownTopicOrPartition
from logbroker.listeners import ListenerAddress, SecurityProtocol
from logbroker.quotas.entities import NO_QUOTAS, Quotas
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable
from logbroker.security.authorizer import NO_ACLS, AclIndex
from logbroker.security.users import NO_USERS, Users

COORDINATION_SLOTS: Final = 16
"""The number of slots that consumer groups hash to; each slot is coordinated by one broker.

It never changes in the life of a cluster. Several slots per broker spread the groups evenly.
"""


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The addresses at which clients reach a broker: that of its first listener, and all.

    Without `listeners`, the address is that of a PLAINTEXT listener.
    """

    broker_id: int
    host: str
    port: int
    listeners: tuple[ListenerAddress, ...] = ()

    def __post_init__(self) -> None:
        """Add the only listener if none is given."""
        if not self.listeners:
            protocol = SecurityProtocol.PLAINTEXT
            only = ListenerAddress(protocol.value, protocol, self.host, self.port)
            object.__setattr__(self, "listeners", (only,))

    @classmethod
    def of(cls, broker_id: int, listeners: Sequence[ListenerAddress]) -> Self:
        """Return the endpoint of a broker with these listeners, at least one."""
        return cls(broker_id, listeners[0].host, listeners[0].port, tuple(listeners))

    def at(self, listener: str) -> ListenerAddress | None:
        """Return the address of a listener by its name; None if the broker does not have it."""
        return next((each for each in self.listeners if each.name == listener), None)


@dataclass(frozen=True)
class ClusterView:
    """The live brokers, the topics and the coordinators; immutable.

    `brokers` are those registered now. A broker whose session has expired is missing, even from its
    own view. `coordinators` maps each coordinated slot to its broker. `unreadable` names topics
    whose metadata cannot be parsed: no broker serves them, and no broker deletes their data.
    `acls` and `quotas` stay the same objects as long as none of them changes.
    """

    cluster_id: str
    controller_id: int | None
    brokers: Mapping[int, BrokerEndpoint]
    topics: TopicTable
    coordinators: Mapping[int, int] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    acls: AclIndex = NO_ACLS
    users: Users = NO_USERS
    quotas: Quotas = NO_QUOTAS

    @cached_property
    def _by_listener(self) -> dict[str, "ClusterView"]:
        return {}

    def at_listener(self, listener: str) -> "ClusterView":
        """Return the view for clients of a listener: each broker has that listener's address.

        Brokers without the listener are missing, as if they were down: Kafka does the same.
        """
        if listener not in self._by_listener:
            addresses = {number: broker.at(listener) for number, broker in self.brokers.items()}
            brokers = {
                number: BrokerEndpoint(number, address.host, address.port, (address,))
                for number, address in addresses.items()
                if address is not None
            }
            self._by_listener[listener] = replace(self, brokers=MappingProxyType(brokers))
        return self._by_listener[listener]

    def topic(self, name: str) -> Topic:
        """Return the topic of this name.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
        """
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopicOrPartition(f"unknown topic {name!r}") from None

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """Return the topic of this id.

        Raises:
            UnknownTopicId: the topic does not exist.
        """
        name = self.topics.name_of(topic_id)
        if name is None:
            raise UnknownTopicId(f"unknown topic id {topic_id}")
        return self.topics[name]

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, if it exists."""
        return self.topics.name_of(topic_id)

    def leader(self, topic: Topic, partition: int) -> int | None:
        """Return the leader of a partition: the first of its replicas that is live."""
        return next((each for each in topic.replicas[partition] if each in self.brokers), None)

    def count_leaderless(self) -> int:
        """Return the number of partitions without a live broker."""
        return sum(
            not any(each in self.brokers for each in replicas)
            for topic in self.topics.values()
            for replicas in topic.replicas
        )

    def coordinator(self, group_id: str) -> BrokerEndpoint | None:
        """Return the broker that coordinates a consumer group now."""
        broker_id = self.coordinators.get(coordination_slot(group_id))
        return None if broker_id is None else self.brokers.get(broker_id)


def coordination_slot(group_id: str) -> int:
    """Return the slot of a group, which is the same on every broker."""
    return zlib.crc32(group_id.encode()) % COORDINATION_SLOTS


def new_cluster_id() -> str:
    """Return a new cluster id: 16 random bytes in base64url without padding, as in Kafka."""
    # As in Kafka: an id that starts with a dash looks like an option on a command line.
    while (text := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
