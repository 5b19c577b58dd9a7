"""The cluster as one broker sees it at one moment."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from uuid import UUID, uuid4

from logbroker.errors import UnknownTopicId, UnknownTopicOrPartition
from logbroker.registry.topic import Topic

COORDINATION_SLOTS: Final = 16
"""Consumer groups fall into so many slots, and each slot is one broker's to coordinate. Fixed for
the life of a cluster; a few for each of a few brokers spread them evenly enough."""


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """How clients reach a broker."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True)
class ClusterView:
    """Who lives, which topics there are, who coordinates what; a change makes a new view.

    `brokers` are those registered now: one whose session is lost is not among them, and that
    includes the broker whose view this is. `coordinators` has the broker of each slot that has one.
    `unreadable` names the topics that are there, but whose metadata makes no sense: nobody serves
    them, and nobody may remove their data.
    """

    cluster_id: str
    controller_id: int | None
    brokers: Mapping[int, BrokerEndpoint]
    topics: Mapping[str, Topic]
    coordinators: Mapping[int, int] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()

    @cached_property
    def _names_by_id(self) -> dict[UUID, str]:
        return {topic.topic_id: name for name, topic in self.topics.items()}

    def topic(self, name: str) -> Topic:
        """The topic of this name.

        Raises:
            UnknownTopicOrPartition: there is none.
        """
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}") from None

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic of this id.

        Raises:
            UnknownTopicId: there is none, or no more.
        """
        try:
            return self.topics[self._names_by_id[topic_id]]
        except KeyError:
            raise UnknownTopicId(f"there is no topic with id {topic_id}") from None

    def leader(self, topic: Topic, partition: int) -> int | None:
        """The broker that serves a partition now: the first of its replicas that lives."""
        return next((each for each in topic.replicas[partition] if each in self.brokers), None)

    def count_leaderless(self) -> int:
        """How many partitions nobody serves now, as none of their brokers lives."""
        return sum(
            not any(each in self.brokers for each in replicas)
            for topic in self.topics.values()
            for replicas in topic.replicas
        )

    def coordinator(self, group_id: str) -> BrokerEndpoint | None:
        """The broker that looks after a consumer group now."""
        broker_id = self.coordinators.get(coordination_slot(group_id))
        return None if broker_id is None else self.brokers.get(broker_id)


def coordination_slot(group_id: str) -> int:
    """The slot of a group, the same at every broker."""
    return zlib.crc32(group_id.encode()) % COORDINATION_SLOTS


def new_cluster_id() -> str:
    """16 random bytes in base64url without padding, as Kafka has them."""
    # Kafka draws again when an id begins with a dash, which a command line takes for an option.
    while (text := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
