"""The registry of a cluster of brokers, in a ZooKeeper server or ensemble.

The thread that requests a change writes it. It then waits until the follower's thread has read the
change back and published the view.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kazoo.exceptions import NodeExistsError

from logbroker.errors import ConfigurationError, RegistryUnavailable
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.quotas.entities import Quotas
from logbroker.registry.acl_payloads import check_acl_count, format_acls, parse_acls
from logbroker.registry.cluster import BrokerEndpoint, ClusterView, new_cluster_id
from logbroker.registry.quota_payloads import format_quotas, parse_quotas
from logbroker.registry.registry import Registry, Replicas, Settings
from logbroker.registry.topic import Topic
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.client_settings import NO_SECURITY, ZooKeeperSecurity
from logbroker.registry.zookeeper.documents import DocumentCodec, DocumentStore
from logbroker.registry.zookeeper.follower import ClusterFollower
from logbroker.registry.zookeeper.groups import GroupStore
from logbroker.registry.zookeeper.lease import LeaseKeeper, SessionLease, boot_clock_s
from logbroker.registry.zookeeper.payloads import format_cluster_id, parse_cluster_id
from logbroker.registry.zookeeper.session import ZooKeeperSession, ensure_path, exists, get
from logbroker.registry.zookeeper.topics import TopicStore
from logbroker.registry.zookeeper.view_watcher import ALL_SLOTS
from logbroker.security.acl import Acl
from logbroker.security.users import Users, format_users, parse_users

_log: Final = logging.getLogger(__name__)

LASTING_PATHS: Final = (
    paths.BROKER_IDS,
    paths.BROKER_TOPICS,
    paths.TOPIC_CONFIGS,
    paths.CONSUMERS,
    paths.ACLS,
    paths.USERS,
    paths.QUOTAS,
    *ALL_SLOTS,
)
"""The permanent nodes that the first broker of a cluster creates."""

_ACL_CODEC: Final = DocumentCodec("ACLs", lambda content: parse_acls(content).acls, format_acls)
_USER_CODEC: Final = DocumentCodec("users", parse_users, format_users)
_QUOTA_CODEC: Final = DocumentCodec("quotas", parse_quotas, format_quotas)


class ZooKeeperRegistry(Registry):
    """The registry as used by one broker of a cluster.

    A broker whose session has expired is in no view, not even its own, until it has registered in a
    new session. It does that by itself.
    """

    def __init__(
        self, session: ZooKeeperSession, cluster_id: str, broker_id: int, directory_id: str
    ) -> None:
        self._session = session
        self._lease: SessionLease | None = None
        self._lease_keeper = LeaseKeeper(session, self._current_lease, _log_lease_failure)
        self._follower = ClusterFollower(session, broker_id, directory_id, cluster_id)
        self._topics = TopicStore(session, broker_id, self._follower.check_session)
        check = self._follower.check_session
        self._acls = DocumentStore(session, check, paths.ACLS, _ACL_CODEC)
        self._users = DocumentStore(session, check, paths.USERS, _USER_CODEC)
        self._quotas = DocumentStore(session, check, paths.QUOTAS, _QUOTA_CODEC)
        self._groups = GroupStore(
            session, self._follower.fence_of, self._follower.handle_refused_write
        )
        session.add_listener(self._lease_keeper.renew_soon)
        session.add_listener(self._follower.wake)

    @classmethod
    def open(
        cls,
        connect: str,
        broker_id: int,
        session_timeout_s: float,
        directory_id: str,
        security: ZooKeeperSecurity = NO_SECURITY,
    ) -> "ZooKeeperRegistry":
        """Return a registry with a current view; this broker has not joined yet.

        `connect` is `HOST:PORT[,HOST:PORT...][/PATH]`, as for Kafka; missing nodes below the path
        are created. `directory_id` belongs to the data directory that this process has locked.

        Raises:
            ConfigurationError: no server answers, or the address is malformed.
        """
        session = ZooKeeperSession(connect, session_timeout_s, security)
        session.connect()
        try:
            registry = cls(session, _prepare_cluster(session), broker_id, directory_id)
        except (RegistryUnavailable, ConfigurationError) as error:
            session.close()
            raise ConfigurationError(f"zookeeper is {connect!r}: {error}") from None
        registry._start(connect)
        return registry

    @property
    def view(self) -> ClusterView:
        """The newest view; before `join` this broker is not in it."""
        return self._follower.view

    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """Register this broker, replacing a dead process of the same data directory.

        Another broker under this id gets the time in which its session would expire. The first
        published view contains this broker; its slots may follow later.
        """
        self._follower.join(endpoint, on_change)

    def may_coordinate(self) -> bool:
        """Return whether the lease on the current session is valid."""
        lease = self._lease
        return (
            lease is not None
            and lease.session_id == self._session.state.session_id
            and lease.is_valid(boot_clock_s())
        )

    def create_topic(self, name: str, replicas: Replicas, settings: Settings) -> Topic:
        """Create a topic with a new id."""
        created = self._topics.create(name, replicas, settings)
        self._follower.wait_for([paths.BROKER_TOPICS])
        return created

    def delete_topic(self, name: str, topic_id: UUID | None = None) -> None:
        """Delete a topic."""
        self._topics.delete(name, topic_id)
        self._follower.wait_for([paths.BROKER_TOPICS])

    def grow_topic(self, name: str, replicas: Replicas) -> Topic:
        """Set all partitions of a topic to `replicas`."""
        grown = self._topics.grow(name, replicas)
        self._follower.wait_for([paths.topic(name)])
        return grown

    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> Topic:
        """Apply `change` to the settings of a topic."""
        changed = self._topics.change_settings(name, change)
        self._follower.wait_for([paths.topic(name)])
        return changed

    def allocate_producer_ids(self, count: int) -> range:
        """Allocate `count` unused producer ids."""
        return self._topics.allocate_producer_ids(count)

    def change_acls(self, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """Apply `change` to the ACLs; the other brokers see them through their watches."""

        def checked(before: frozenset[Acl]) -> frozenset[Acl]:
            after = change(before)
            check_acl_count(len(after))
            return after

        self._acls.change(checked)
        self._follower.wait_for([paths.ACLS])

    def change_users(self, change: Callable[[Users], Users]) -> None:
        """Apply `change` to the users; the other brokers see them through their watches."""
        self._users.change(change)
        self._follower.wait_for([paths.USERS])

    def change_quotas(self, change: Callable[[Quotas], Quotas]) -> None:
        """Apply `change` to the quotas; the other brokers see them through their watches."""
        self._quotas.change(change)
        self._follower.wait_for([paths.QUOTAS])

    def load_groups(self, slot: int) -> list[StoredGroup]:
        """Return every consumer group of a slot that has stored state."""
        return self._groups.load(slot)

    def store_membership(self, group_id: str, membership: StoredMembership) -> None:
        """Replace the membership of a group."""
        self._groups.store_membership(group_id, membership)

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Set offsets of a group, in one transaction."""
        self._groups.commit_offsets(group_id, offsets)

    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        """Delete offsets of a group."""
        self._groups.delete_offsets(group_id, places)

    def delete_group(self, group_id: str) -> None:
        """Delete a group; current nodes of the paper's consumers remain."""
        self._groups.delete_group(group_id)

    def has_paper_consumers(self, group_id: str, /) -> bool:
        """Return whether the group has nodes of the paper's consumers."""
        return self._groups.has_paper_consumers(group_id)

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes at once."""
        self._lease_keeper.stop()
        self._follower.stop()
        self._session.close()
        self._follower.finish()

    def _start(self, connect: str) -> None:
        self._lease_keeper.start()
        try:
            self._follower.start()
        except RegistryUnavailable as error:
            self.close()
            raise ConfigurationError(f"zookeeper is {connect!r}: {error}") from None

    def _current_lease(self) -> SessionLease | None:
        """Return the lease of the current session; one of a new session awaits its renewal."""
        session_id = self._session.state.session_id
        if session_id is None:
            return None
        if self._lease is None or self._lease.session_id != session_id:
            self._lease = SessionLease(session_id, self._session.timeout_s, sent_s=-math.inf)
        return self._lease


def _log_lease_failure(error: Exception) -> None:
    _log.error("renewing the ZooKeeper lease failed", exc_info=error)


def _prepare_cluster(session: ZooKeeperSession) -> str:
    """Create the missing permanent nodes, and return the cluster id.

    Raises:
        RegistryUnavailable: a node cannot be created, or the id cannot be parsed.
        ConfigurationError: the cluster's topics are missing.
    """
    answer, topics = session.request_all([get(paths.CLUSTER_ID), exists(paths.BROKER_TOPICS)])
    if answer is not None and topics is None:
        # If it were created empty, every starting broker would delete all its logs.
        raise ConfigurationError(
            f"{paths.CLUSTER_ID} exists, but {paths.BROKER_TOPICS} is missing: restore ZooKeeper's "
            "data, or create the node by hand if all logs may be deleted"
        )
    for path in LASTING_PATHS:
        session.request(ensure_path(path))
    try:
        if answer is None:
            answer = _make_cluster_id(session)
        return parse_cluster_id(answer[0])
    except ValueError as error:
        raise RegistryUnavailable(f"{paths.CLUSTER_ID} is malformed: {error}") from None


def _make_cluster_id(session: ZooKeeperSession) -> Any:
    content = format_cluster_id(new_cluster_id())
    # Another starting broker may create it first.
    with contextlib.suppress(NodeExistsError):
        session.request(
            lambda client: client.create_async(paths.CLUSTER_ID, content, makepath=True)
        )
    return session.request(get(paths.CLUSTER_ID))
