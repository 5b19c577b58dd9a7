"""What any registry offers, be it one file or a ZooKeeper ensemble.

Data flows one way: a change is asked of the registry, becomes durable there, and comes back as
a new `ClusterView`, to the broker that asked no other way than to all others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.topic import Topic

Replicas = Sequence[Sequence[int]]
"""For each partition the ids of its brokers, the leader first."""

Settings = Mapping[str, str]


class Registry(ABC):
    """The cluster's metadata, from the seat of one broker.

    Methods that change something may be called on any thread but those of `on_change`. They
    block until the change is durable and the view that has it was handed to `on_change`. All
    may raise RegistryUnavailable: then the change may have been made or not.
    """

    @property
    @abstractmethod
    def view(self) -> ClusterView:
        """The newest view; any thread may read it, and it never waits."""

    @abstractmethod
    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """Register this broker; from then on `on_change` hears of each new view, in order.

        It is called on a thread of the registry's and must not wait.

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
        """A new topic under a new id.

        Raises:
            InvalidTopic: the name is not allowed, or differs from another in `.` and `_` alone.
            TopicAlreadyExists: a topic has this name.
        """

    @abstractmethod
    def delete_topic(self, name: str, topic_id: UUID | None = None) -> None:
        """Forget a topic; each broker removes the folders of its own partitions.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            UnknownTopicId: one of this name was made anew, and has another id than `topic_id`.
        """

    @abstractmethod
    def grow_topic(self, name: str, replicas: Replicas) -> Topic:
        """The topic with `replicas` as all its partitions, the old ones first.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            InvalidPartitions: the old partitions are not its beginning, or nothing is new.
        """

    @abstractmethod
    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> Topic:
        """The topic with what `change` makes of its settings; called again after a conflict.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            RequestRefused: what `change` raises.
        """

    @abstractmethod
    def allocate_producer_ids(self, count: int) -> range:
        """`count` producer ids that no broker was given before; a crash wastes them."""

    @abstractmethod
    def load_groups(self, slot: int) -> list[StoredGroup]:
        """Every consumer group of a coordination slot, as it was last stored.

        From then on writes of the slot are let through only as long as it has been this broker's
        without a break since.

        Raises:
            NotCoordinator: the slot is not, or no longer, this broker's.
        """

    @abstractmethod
    def store_membership(self, group_id: str, membership: StoredMembership) -> None:
        """Replace the membership of a group.

        Raises:
            NotCoordinator: the group's slot is not, or no longer, this broker's.
            GroupTooLarge: it does not fit what the registry keeps in one piece.
        """

    @abstractmethod
    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Set offsets of a group, all or none of them.

        Raises:
            NotCoordinator: as above.
            GroupTooLarge: they do not fit what the registry changes at once.
        """

    @abstractmethod
    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        """Forget offsets of a group; those that are not there are no error.

        Raises:
            NotCoordinator: as above.
        """

    @abstractmethod
    def delete_group(self, group_id: str) -> None:
        """Forget a group, its membership and its offsets.

        Raises:
            NotCoordinator: as above.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the cluster at once; no method may be called any more."""
