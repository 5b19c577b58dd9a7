"""The interface of every registry, whether local files or a ZooKeeper ensemble.

Data flows one way. A change is requested from the registry, becomes durable there, and comes back
as a new `ClusterView`, in the same way for the requesting broker and for all others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from logbroker.errors import RequestRefused
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.quotas.entities import Quotas
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.topic import Topic
from logbroker.security.acl import Acl
from logbroker.security.users import Users

Replicas = Sequence[Sequence[int]]
"""For each partition the ids of its brokers, the leader first."""

Settings = Mapping[str, str]


class PlacedTopic(NamedTuple):
    """A topic to create, with the brokers of its partitions."""

    name: str
    replicas: Replicas
    settings: Settings


class Registry(ABC):
    """The cluster's metadata as seen by one broker.

    Methods that change something may be called from any thread except those of `on_change`. They
    return when the change is durable and its view has been passed to `on_change`. All of them may
    raise RegistryUnavailable: then the change may have been made or not.
    """

    @property
    @abstractmethod
    def view(self) -> ClusterView:
        """The newest view; thread-safe and non-blocking."""

    @abstractmethod
    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """Register this broker; from then on `on_change` receives each new view, in order.

        The registry calls it on a thread of its own; it must not block.

        Raises:
            ConfigurationError: another broker is registered under this id.
        """

    @abstractmethod
    def may_coordinate(self) -> bool:
        """Return whether certainly no other broker owns this broker's coordination slots.

        False once the registry has not answered for so long that the broker's session may have
        expired, for example after the process or the machine was suspended.
        """

    @abstractmethod
    def create_topic(self, name: str, replicas: Replicas, settings: Settings) -> Topic:
        """Create a topic with a new id.

        Raises:
            InvalidTopic: the name is not allowed, or differs from another only in `.` and `_`.
            TopicAlreadyExists: a topic has this name.
        """

    def create_topics(self, wanted: Sequence[PlacedTopic]) -> list[Topic | RequestRefused]:
        """Create topics; returns each, or the error that `create_topic` raises for it."""
        outcomes: list[Topic | RequestRefused] = []
        for each in wanted:
            try:
                outcomes.append(self.create_topic(*each))
            except RequestRefused as refusal:
                outcomes.append(refusal)
        return outcomes

    @abstractmethod
    def delete_topic(self, name: str, topic_id: UUID | None = None) -> None:
        """Delete a topic; each broker removes the directories of its own partitions.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
            UnknownTopicId: the topic of this name was created again, with an id other than
                `topic_id`.
        """

    @abstractmethod
    def grow_topic(self, name: str, replicas: Replicas) -> Topic:
        """Set all partitions of a topic to `replicas`, the existing ones first.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
            InvalidPartitions: an existing partition differs, or none is new.
        """

    @abstractmethod
    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> Topic:
        """Apply `change` to the settings of a topic; it is called again after a conflict.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
            RequestRefused: raised by `change`.
        """

    @abstractmethod
    def allocate_producer_ids(self, count: int) -> range:
        """Allocate `count` unused producer ids; a crash wastes them."""

    @abstractmethod
    def change_acls(self, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """Apply `change` to the cluster's ACLs; it is called again after a conflict.

        Raises:
            InvalidRequest: the ACLs exceed what the registry stores.
            RequestRefused: raised by `change`.
        """

    @abstractmethod
    def change_users(self, change: Callable[[Users], Users]) -> None:
        """Apply `change` to the users of SASL; it is called again after a conflict.

        Raises:
            RequestRefused: raised by `change`.
        """

    @abstractmethod
    def change_quotas(self, change: Callable[[Quotas], Quotas]) -> None:
        """Apply `change` to the client quotas; it is called again after a conflict.

        Raises:
            InvalidRequest: the quotas exceed what the registry stores.
            RequestRefused: raised by `change`.
        """

    @abstractmethod
    def load_groups(self, slot: int) -> list[StoredGroup]:
        """Return every consumer group of a coordination slot, as last stored.

        From then on, writes to the slot are accepted only while this broker owns it without
        interruption.

        Raises:
            NotCoordinator: this broker does not own the slot.
        """

    @abstractmethod
    def store_membership(self, group_id: str, membership: StoredMembership) -> None:
        """Replace the membership of a group.

        Raises:
            NotCoordinator: this broker does not own the group's slot.
            GroupTooLarge: the membership exceeds what the registry stores in one entry.
        """

    @abstractmethod
    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Set offsets of a group, all or none of them.

        Raises:
            NotCoordinator: this broker does not own the group's slot.
            GroupTooLarge: the offsets exceed what the registry changes in one transaction.
        """

    @abstractmethod
    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        """Delete offsets of a group; missing ones are ignored.

        Raises:
            NotCoordinator: this broker does not own the group's slot.
        """

    @abstractmethod
    def delete_group(self, group_id: str) -> None:
        """Delete a group, its membership and its offsets.

        Raises:
            NotCoordinator: this broker does not own the group's slot.
        """

    @abstractmethod
    def has_paper_consumers(self, group_id: str, /) -> bool:
        """Return whether consumers of the paper use a group; its offsets do not expire."""

    @abstractmethod
    def close(self) -> None:
        """Leave the cluster at once; no method may be called afterwards."""
