"""The registry of a single broker: files in its data directory.

`registry.json` and its journal hold topics and producer ids (`logbroker.registry.local.journal`);
`groups/` holds one file per consumer group; `acls.json` holds the access control lists,
`users.json` (mode 0600) the users of SASL and `quotas.json` the client quotas, if there are any.
Each change of those replaces a whole file. A crash leaves the old or the new content, and at most a
`.tmp` that the next change overwrites.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Final
from uuid import UUID, uuid4

from logbroker.errors import (
    ConfigurationError,
    RequestRefused,
    StorageFailed,
    UnknownTopicOrPartition,
)
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.quotas.entities import NO_QUOTAS, Quotas
from logbroker.registry.acl_payloads import check_acl_count, format_acls, parse_acls
from logbroker.registry.cluster import (
    COORDINATION_SLOTS,
    BrokerEndpoint,
    ClusterView,
    coordination_slot,
)
from logbroker.registry.local.document import RegistryChange, RegistryDocument
from logbroker.registry.local.group_files import GroupFiles
from logbroker.registry.local.journal import MetadataFiles
from logbroker.registry.quota_payloads import format_quotas, parse_quotas
from logbroker.registry.registry import PlacedTopic, Registry, Replicas, Settings
from logbroker.registry.topic import Topic, TopicNames, check_growth, check_id
from logbroker.registry.topic_table import TopicIndex
from logbroker.security.acl import Acl
from logbroker.security.authorizer import AclIndex
from logbroker.security.users import NO_USERS, Users, format_users, parse_users
from logbroker.storage.file_writes import replace_file

REGISTRY_FILE: Final = "registry.json"
GROUPS_FOLDER: Final = "groups"
ACLS_FILE: Final = "acls.json"
USERS_FILE: Final = "users.json"
QUOTAS_FILE: Final = "quotas.json"


class LocalRegistry(Registry):
    """The registry of a broker that owns every partition and coordinates every group.

    Every change may raise StorageFailed; then the registry is unchanged. The thread that requests a
    change publishes the view.
    """

    def __init__(
        self,
        path: Path,
        files: MetadataFiles,
        group_files: GroupFiles,
        groups: Mapping[str, StoredGroup],
        acls: AclIndex,
        users: Users = NO_USERS,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        self._path = path
        self._files = files
        self._index = TopicIndex()
        self._acls = acls
        self._users = users
        self._quotas = quotas
        self._endpoint: BrokerEndpoint | None = None
        self._on_change: Callable[[ClusterView], None] | None = None
        self._view = self._build_view()
        # Held during the write and during publication, so that views arrive in order.
        self._changing = RLock()
        self._group_files = group_files
        self._groups = dict(groups)
        self._changing_groups = RLock()

    @classmethod
    def open(cls, data_dir: Path, broker_id: int) -> "LocalRegistry":
        """Open the registry in a data directory, and create it if it is missing.

        Raises:
            ConfigurationError: a file belongs to another broker id, has another version, or cannot
                be read or created.
        """
        path = data_dir / REGISTRY_FILE
        group_files = GroupFiles(data_dir / GROUPS_FOLDER)
        try:
            files = MetadataFiles.open(path, broker_id)
            if files.document.broker_id != broker_id:
                raise ConfigurationError(
                    f"broker_id is {broker_id}; {path} belongs to broker {files.document.broker_id}"
                )
            groups = group_files.load()
            acls = _load_acls(path.with_name(ACLS_FILE))
            users = load_users(data_dir)
            quotas = _load_quotas(path.with_name(QUOTAS_FILE))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"registry {path} cannot be opened: {error}") from error
        by_id = {group.group_id: group for group in groups}
        return cls(path, files, group_files, by_id, acls, users, quotas)

    @property
    def view(self) -> ClusterView:
        """The newest view; before `join` it has no broker."""
        return self._view

    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """Register the only broker; publishes the first view before it returns."""
        with self._changing:
            self._endpoint = endpoint
            self._on_change = on_change
            self._publish_view()

    def may_coordinate(self) -> bool:
        """Return True: no other broker exists."""
        return True

    def create_topic(self, name: str, replicas: Replicas, settings: Settings) -> Topic:
        """Create a topic with a new id; `replicas` name only this broker."""
        (outcome,) = self.create_topics([PlacedTopic(name, replicas, settings)])
        if isinstance(outcome, RequestRefused):
            raise outcome
        return outcome

    def create_topics(self, wanted: Sequence[PlacedTopic]) -> list[Topic | RequestRefused]:
        """Create topics in one change of the journal, with one new view."""
        with self._changing:
            self._index.follow(self._metadata.topics)
            names = self._index.names.extended()
            outcomes = [self._new_topic(each, names) for each in wanted]
            created = {each.name: each for each in outcomes if isinstance(each, Topic)}
            if not created:
                return outcomes
            try:
                self._store_topics(created)
            except StorageFailed as failure:
                return [failure if isinstance(each, Topic) else each for each in outcomes]
            return outcomes

    def delete_topic(self, name: str, topic_id: UUID | None = None) -> None:
        """Delete a topic."""
        with self._changing:
            check_id(self._topic(name), topic_id)
            self._store_topics({name: None})

    def grow_topic(self, name: str, replicas: Replicas) -> Topic:
        """Set all partitions of a topic to `replicas`."""
        with self._changing:
            topic = self._topic(name)
            check_growth(topic, replicas)
            return self._put(replace(topic, replicas=self._own(replicas)))

    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> Topic:
        """Apply `change` to the settings of a topic."""
        with self._changing:
            topic = self._topic(name)
            frozen = MappingProxyType(dict(change(topic.settings)))
            return self._put(replace(topic, settings=frozen))

    def allocate_producer_ids(self, count: int) -> range:
        """Allocate `count` unused producer ids."""
        with self._changing:
            first = self._metadata.next_producer_id
            self._write(RegistryChange(next_producer_id=first + count))
            return range(first, first + count)

    def change_acls(self, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """Apply `change` to the ACLs."""
        with self._changing:
            acls = change(self._acls.acls)
            check_acl_count(len(acls))
            path = self._path.with_name(ACLS_FILE)
            try:
                replace_file(path, format_acls(acls))
            except OSError as error:
                raise StorageFailed(f"{path} cannot be written: {error}") from error
            self._acls = AclIndex(acls)
            self._publish_view()

    def change_users(self, change: Callable[[Users], Users]) -> None:
        """Apply `change` to the users."""
        with self._changing:
            users = change(self._users)
            try:
                store_users(self._path.parent, users)
            except OSError as error:
                raise StorageFailed(f"the users cannot be written: {error}") from error
            self._users = users
            self._publish_view()

    def change_quotas(self, change: Callable[[Quotas], Quotas]) -> None:
        """Apply `change` to the client quotas."""
        with self._changing:
            quotas = change(self._quotas)
            path = self._path.with_name(QUOTAS_FILE)
            try:
                replace_file(path, format_quotas(quotas))
            except OSError as error:
                raise StorageFailed(f"{path} cannot be written: {error}") from error
            self._quotas = quotas
            self._publish_view()

    def load_groups(self, slot: int) -> list[StoredGroup]:
        """Return every consumer group of a slot."""
        with self._changing_groups:
            return [g for g in self._groups.values() if coordination_slot(g.group_id) == slot]

    def store_membership(self, group_id: str, membership: StoredMembership) -> None:
        """Replace the membership of a group; its size is unlimited."""
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
        """Delete offsets of a group; a group without other state is deleted as well."""
        with self._changing_groups:
            group = self._group(group_id)
            deleted = frozenset(places)
            remaining = {key: each for key, each in group.offsets.items() if key not in deleted}
            if remaining or group.membership is not None:
                self._put_group(replace(group, offsets=remaining))
            else:
                self.delete_group(group_id)

    def delete_group(self, group_id: str) -> None:
        """Delete a group."""
        with self._changing_groups:
            try:
                self._group_files.delete(group_id)
            except OSError as error:
                raise StorageFailed(f"group {group_id!r} cannot be deleted: {error}") from error
            self._groups.pop(group_id, None)

    def has_paper_consumers(self, _group_id: str, /) -> bool:
        """Return False: the paper's consumers need ZooKeeper."""
        return False

    def close(self) -> None:
        """Do nothing: no file stays open between two changes."""

    def _new_topic(self, wanted: PlacedTopic, names: TopicNames) -> Topic | RequestRefused:
        try:
            names.check(wanted.name)
        except RequestRefused as refusal:
            return refusal
        names.add(wanted.name)
        frozen = MappingProxyType(dict(wanted.settings))
        return Topic(wanted.name, uuid4(), self._own(wanted.replicas), frozen)

    def _topic(self, name: str) -> Topic:
        topic = self._metadata.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"unknown topic {name!r}")
        return topic

    def _own(self, replicas: Replicas) -> tuple[tuple[int, ...], ...]:
        own = (self._metadata.broker_id,)
        assert replicas, "a topic has at least one partition"
        assert all(tuple(each) == own for each in replicas), f"unknown broker in {replicas}"
        return (own,) * len(replicas)

    def _put(self, topic: Topic) -> Topic:
        self._store_topics({topic.name: topic})
        return topic

    def _store_topics(self, changed: Mapping[str, Topic | None]) -> None:
        self._write(RegistryChange(changed))
        self._publish_view()

    def _write(self, change: RegistryChange) -> None:
        """Make a change durable, then current."""
        try:
            self._files.store(change)
        except OSError as error:
            raise StorageFailed(f"registry {self._path} cannot be written: {error}") from error

    @property
    def _metadata(self) -> RegistryDocument:
        return self._files.document

    def _publish_view(self) -> None:
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
            topics=self._metadata.topics,
            coordinators=MappingProxyType({} if endpoint is None else dict.fromkeys(slots, own)),
            acls=self._acls,
            users=self._users,
            quotas=self._quotas,
        )

    def _group(self, group_id: str) -> StoredGroup:
        return self._groups.get(group_id) or StoredGroup(group_id, None, {})

    def _put_group(self, group: StoredGroup) -> None:
        try:
            self._group_files.store(group)
        except OSError as error:
            raise StorageFailed(f"group {group.group_id!r} cannot be written: {error}") from error
        self._groups[group.group_id] = group


def load_users(data_dir: Path) -> Users:
    """Return the users that are stored in a data directory.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is malformed.
    """
    path = data_dir / USERS_FILE
    try:
        return parse_users(path.read_bytes() if path.exists() else b"")
    except ValueError as error:
        raise ValueError(f"{path} is malformed: {error}") from None


def store_users(data_dir: Path, users: Users) -> None:
    """Store the users in a data directory, readable by the owner only.

    Raises:
        OSError: the file cannot be written.
    """
    replace_file(data_dir / USERS_FILE, format_users(users), mode=0o600)


def _load_acls(path: Path) -> AclIndex:
    try:
        return parse_acls(path.read_bytes() if path.exists() else b"")
    except ValueError as error:
        raise ValueError(f"{path} is malformed: {error}") from None


def _load_quotas(path: Path) -> Quotas:
    try:
        return parse_quotas(path.read_bytes() if path.exists() else b"")
    except ValueError as error:
        raise ValueError(f"{path} is malformed: {error}") from None
