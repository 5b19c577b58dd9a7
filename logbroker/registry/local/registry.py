"""The registry of a broker that runs alone: files in its data directory.

`registry.json` holds the JSON of `logbroker.registry.local.document`, and `groups/` a file for
each consumer group. Each file is replaced as a whole with every change. A crash leaves the old
or the new content, never a mixture, and at most a `.tmp` that the next change overwrites.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Final
from uuid import UUID, uuid4

from logbroker.errors import ConfigurationError, StorageFailed, UnknownTopicOrPartition
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.registry.cluster import (
    COORDINATION_SLOTS,
    BrokerEndpoint,
    ClusterView,
    coordination_slot,
    new_cluster_id,
)
from logbroker.registry.local.document import ClusterMetadata, format_metadata, parse_metadata
from logbroker.registry.local.group_files import GroupFiles
from logbroker.registry.registry import Registry, Replicas, Settings
from logbroker.registry.topic import Topic, check_growth, check_id, check_new_topic
from logbroker.storage.durable_file import replace_file

REGISTRY_FILE: Final = "registry.json"
GROUPS_FOLDER: Final = "groups"


class LocalRegistry(Registry):
    """One broker, which has every partition and looks after every group.

    Every change may raise StorageFailed: then the registry goes on as if it had not been asked.
    Views are handed on by the thread that asked for the change.
    """

    def __init__(
        self,
        path: Path,
        metadata: ClusterMetadata,
        group_files: GroupFiles,
        groups: Mapping[str, StoredGroup],
    ) -> None:
        self._path = path
        self._metadata = metadata
        self._endpoint: BrokerEndpoint | None = None
        self._on_change: Callable[[ClusterView], None] | None = None
        self._view = self._build_view()
        # Held over the write and over handing the view on, so that views are seen in order.
        self._changing = RLock()
        self._group_files = group_files
        self._groups = dict(groups)
        self._changing_groups = RLock()

    @classmethod
    def open(cls, data_dir: Path, broker_id: int) -> "LocalRegistry":
        """The registry in a data directory, which is made when it is not there.

        Raises:
            ConfigurationError: a file belongs to another broker id, is of another version,
                or cannot be read or made.
        """
        path = data_dir / REGISTRY_FILE
        group_files = GroupFiles(data_dir / GROUPS_FOLDER)
        try:
            metadata = _load_or_make(path, broker_id)
            if metadata.broker_id != broker_id:
                raise ConfigurationError(
                    f"broker_id is {broker_id}; {path} belongs to broker {metadata.broker_id}"
                )
            groups = group_files.load()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"registry {path} cannot be opened: {error}") from error
        return cls(path, metadata, group_files, {group.group_id: group for group in groups})

    @property
    def view(self) -> ClusterView:
        """The newest view; before `join` it has no broker."""
        return self._view

    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """Become the cluster's one broker; the first view is handed on before this returns."""
        with self._changing:
            self._endpoint = endpoint
            self._on_change = on_change
            self._hand_on()

    def may_coordinate(self) -> bool:
        """Return True: no other broker exists."""
        return True

    def create_topic(self, name: str, replicas: Replicas, settings: Settings) -> Topic:
        """A new topic under a new id; `replicas` name no broker but this one."""
        with self._changing:
            check_new_topic(name, self._metadata.topics)
            frozen = MappingProxyType(dict(settings))
            return self._put(Topic(name, uuid4(), self._own(replicas), frozen))

    def delete_topic(self, name: str, topic_id: UUID | None = None) -> None:
        """Forget a topic."""
        with self._changing:
            check_id(self._topic(name), topic_id)
            remaining = {n: topic for n, topic in self._metadata.topics.items() if n != name}
            self._store(replace(self._metadata, topics=remaining))

    def grow_topic(self, name: str, replicas: Replicas) -> Topic:
        """The topic with `replicas` as all its partitions."""
        with self._changing:
            topic = self._topic(name)
            check_growth(topic, replicas)
            return self._put(replace(topic, replicas=self._own(replicas)))

    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> Topic:
        """The topic with what `change` makes of its settings."""
        with self._changing:
            topic = self._topic(name)
            frozen = MappingProxyType(dict(change(topic.settings)))
            return self._put(replace(topic, settings=frozen))

    def allocate_producer_ids(self, count: int) -> range:
        """`count` producer ids that nobody was given before."""
        with self._changing:
            first = self._metadata.next_producer_id
            self._write(replace(self._metadata, next_producer_id=first + count))
            return range(first, first + count)

    def load_groups(self, slot: int) -> list[StoredGroup]:
        """Every consumer group of a slot."""
        with self._changing_groups:
            return [g for g in self._groups.values() if coordination_slot(g.group_id) == slot]

    def store_membership(self, group_id: str, membership: StoredMembership) -> None:
        """Replace the membership of a group, however large."""
        with self._changing_groups:
            self._put_group(replace(self._group(group_id), membership=membership))

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Set offsets of a group."""
        with self._changing_groups:
            group = self._group(group_id)
            self._put_group(replace(group, offsets={**group.offsets, **offsets}))

    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        """Forget offsets of a group; one that has nothing else is forgotten with them."""
        with self._changing_groups:
            group = self._group(group_id)
            remaining = {key: each for key, each in group.offsets.items() if key not in places}
            if remaining or group.membership is not None:
                self._put_group(replace(group, offsets=remaining))
            else:
                self.delete_group(group_id)

    def delete_group(self, group_id: str) -> None:
        """Forget a group."""
        with self._changing_groups:
            try:
                self._group_files.delete(group_id)
            except OSError as error:
                raise StorageFailed(f"group {group_id!r} cannot be deleted: {error}") from error
            self._groups.pop(group_id, None)

    def close(self) -> None:
        """Nothing is open between two changes."""

    def _topic(self, name: str) -> Topic:
        topic = self._metadata.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    def _own(self, replicas: Replicas) -> tuple[tuple[int, ...], ...]:
        own = (self._metadata.broker_id,)
        assert replicas, "a topic has at least one partition"
        assert all(tuple(each) == own for each in replicas), f"there is no other broker: {replicas}"
        return (own,) * len(replicas)

    def _put(self, topic: Topic) -> Topic:
        topics = {**self._metadata.topics, topic.name: topic}
        self._store(replace(self._metadata, topics=topics))
        return topic

    def _store(self, metadata: ClusterMetadata) -> None:
        self._write(metadata)
        self._hand_on()

    def _write(self, metadata: ClusterMetadata) -> None:
        """Make `metadata` durable, then the one in force."""
        try:
            replace_file(self._path, format_metadata(metadata))
        except OSError as error:
            raise StorageFailed(f"registry {self._path} cannot be written: {error}") from error
        self._metadata = metadata

    def _hand_on(self) -> None:
        self._view = self._build_view()
        if self._on_change is not None:
            self._on_change(self._view)

    def _build_view(self) -> ClusterView:
        own, endpoint = self._metadata.broker_id, self._endpoint
        slots = range(COORDINATION_SLOTS)
        return ClusterView(
            cluster_id=self._metadata.cluster_id,
            controller_id=None if endpoint is None else own,
            brokers=MappingProxyType({} if endpoint is None else {own: endpoint}),
            topics=MappingProxyType(dict(self._metadata.topics)),
            coordinators=MappingProxyType({} if endpoint is None else dict.fromkeys(slots, own)),
        )

    def _group(self, group_id: str) -> StoredGroup:
        return self._groups.get(group_id) or StoredGroup(group_id, None, {})

    def _put_group(self, group: StoredGroup) -> None:
        try:
            self._group_files.store(group)
        except OSError as error:
            raise StorageFailed(f"group {group.group_id!r} cannot be written: {error}") from error
        self._groups[group.group_id] = group


def _load_or_make(path: Path, broker_id: int) -> ClusterMetadata:
    if path.exists():
        return parse_metadata(path.read_bytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = ClusterMetadata(new_cluster_id(), broker_id, 0, {})
    replace_file(path, format_metadata(metadata))
    return metadata
