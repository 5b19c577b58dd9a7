"""The paper's registries of one consumer group, as used by one of its consumers.

Paths and payloads are those of Kafka 0.8. Every write after `register` is a transaction that
checks the consumer's own registration, an ephemeral node with a unique name. A write that was
requested in one session therefore never takes effect in another.

| node under /consumers/<group> | kind | value |
| --- | --- | --- |
| ids/<consumer> | ephemeral | JSON: the number of streams that it reads of each topic |
| owners/<topic>/<partition> | ephemeral | the consumer thread that owns the partition |
| offsets/<topic>/<partition> | persistent | the offset of the next message, in decimal |

Source: the paper, section 3.2; Kafka 0.8, `ZkUtils.scala`.
"""

import contextlib
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kazoo.client import TransactionRequest
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import WatchedEvent

from logbroker.consumer.rebalance.assignment import Assignment
from logbroker.consumer.settings import STREAMS_MAX
from logbroker.errors import RegistryUnavailable
from logbroker.groups.stored import CommittedOffset, TopicPartition
from logbroker.registry.group_payloads import format_offset, parse_offset
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.session import (
    Deadline,
    ZooKeeperSession,
    children,
    ensure_path,
    exists,
    get,
)

_log: Final = logging.getLogger(__name__)

PARTITIONS_PER_TRANSACTION: Final = 100
"""A transaction stays below ZooKeeper's limit of 1 MB, however long the names are."""

ANY_VERSION: Final = -1


class NotRegistered(Exception):
    """The consumer's registration, or a parent node, does not exist; nothing was written."""


def new_consumer_id(group_id: str) -> str:
    """Return a unique consumer id in the format of Kafka 0.8."""
    now_ms = time.time_ns() // 1_000_000
    unique = uuid.uuid4().hex[:16]
    return f"{paths.node_name(group_id)}_{socket.gethostname()}-{now_ms}-{os.getpid()}-{unique}"


class GroupRegistries:
    """Access of one consumer to its group's registries.

    All methods wait for ZooKeeper and may raise RegistryUnavailable: then the change may have been
    made or not. All methods may raise NotRegistered.
    """

    def __init__(
        self, session: ZooKeeperSession, group_id: str, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called on a thread that must not block."""
        self._session = session
        self._group_id = group_id
        self._on_change = on_change
        self._consumer_id = ""

    def register(self, consumer_id: str, subscription: Mapping[str, int]) -> int:
        """Register the consumer, and return the id of the session that the registration ends with.

        Registering again under the same id has no effect.
        """
        self._consumer_id = consumer_id
        value = _format_registration(subscription)
        for parent in self._parents(subscription):
            self._session.request(ensure_path(parent))
        with _missing_node_as_not_registered(), contextlib.suppress(NodeExistsError):
            self._session.request(
                lambda client: client.create_async(self._own_path, value, ephemeral=True)
            )
        stat = self._session.request(exists(self._own_path))
        if stat is None:
            raise NotRegistered
        return int(stat.ephemeralOwner)

    def read_consumers(self) -> dict[str, dict[str, int]]:
        """Return the consumers of the group, with their number of streams per topic.

        Calls `on_change` when a consumer joins or leaves.
        """
        parent = paths.consumer_ids(self._group_id)
        with _missing_node_as_not_registered():
            names = self._session.request(children(parent, self._handle_event))
        values = self._values([f"{parent}/{name}" for name in names])
        return {
            name: _parse_registration(name, value)
            for name, value in zip(names, values, strict=True)
            if value is not None
        }

    def claim(self, assignment: Assignment) -> bool:
        """Become the owner of every partition; return False if another consumer owns one.

        In that case some partitions may be owned, and `on_change` is called when the other owner
        releases.
        """
        for topic_partitions in _batches(assignment):
            transaction = self._transaction()
            for tp in topic_partitions:
                thread = assignment[tp].encode()
                transaction.create(self._owner_path(tp), thread, ephemeral=True)
            try:
                with _missing_node_as_not_registered():
                    self._session.commit_once(transaction)
            except NodeExistsError:
                self._await_release(topic_partitions)
                return False
        return True

    def release(
        self,
        topic_partitions: Iterable[TopicPartition],
        offsets: Mapping[TopicPartition, int],
        deadline: Deadline | None = None,
    ) -> None:
        """Release the owned partitions and store their offsets.

        A transaction does both, for up to `PARTITIONS_PER_TRANSACTION` partitions.
        """
        for batch in _batches(topic_partitions):
            ours = self._filter_owned(batch, deadline)
            if not ours:
                continue
            transaction = self._transaction()
            self._put_offsets(transaction, {k: offsets[k] for k in ours if k in offsets}, deadline)
            for tp in ours:
                transaction.delete(self._owner_path(tp))
            self._write(transaction, deadline)

    def load_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offsets of partitions; omits those without one."""
        wanted = list(topic_partitions)
        values = self._values([self._offset_path(tp) for tp in wanted])
        found = {tp: _parse_offset(tp, v) for tp, v in zip(wanted, values, strict=True)}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets of owned partitions."""
        for topic_partitions in _batches(offsets):
            transaction = self._transaction()
            self._put_offsets(transaction, {tp: offsets[tp] for tp in topic_partitions})
            self._write(transaction)

    @property
    def _own_path(self) -> str:
        return f"{paths.consumer_ids(self._group_id)}/{self._consumer_id}"

    def _parents(self, topics: Iterable[str]) -> Iterator[str]:
        yield paths.consumer_ids(self._group_id)
        for topic in topics:
            yield paths.owners(self._group_id, topic)
            yield paths.topic_offsets(self._group_id, topic)

    def _owner_path(self, tp: TopicPartition) -> str:
        topic, partition = tp
        return f"{paths.owners(self._group_id, topic)}/{partition}"

    def _offset_path(self, tp: TopicPartition) -> str:
        return paths.offset(self._group_id, *tp)

    def _handle_event(self, _: WatchedEvent) -> None:
        self._on_change()

    def _transaction(self) -> TransactionRequest:
        transaction = self._session.transaction()
        transaction.check(self._own_path, ANY_VERSION)
        return transaction

    def _write(self, transaction: TransactionRequest, deadline: Deadline | None = None) -> None:
        try:
            with _missing_node_as_not_registered():
                self._session.commit_once(transaction, deadline)
        except NodeExistsError as error:
            raise RegistryUnavailable("another client stores offsets of this group") from error

    def _put_offsets(
        self,
        transaction: TransactionRequest,
        offsets: Mapping[TopicPartition, int],
        deadline: Deadline | None = None,
    ) -> None:
        nodes = {self._offset_path(tp): offset for tp, offset in offsets.items()}
        stats = self._session.request_all((exists(node) for node in nodes), deadline)
        for (node, offset), stat in zip(nodes.items(), stats, strict=True):
            value = format_offset(CommittedOffset(offset)).encode()
            if stat is None:
                transaction.create(node, value)
            else:
                transaction.set_data(node, value)

    def _filter_owned(
        self, topic_partitions: Sequence[TopicPartition], deadline: Deadline | None
    ) -> list[TopicPartition]:
        owners = self._values([self._owner_path(tp) for tp in topic_partitions], deadline)
        return [
            tp
            for tp, owner in zip(topic_partitions, owners, strict=True)
            if owner is not None and self._is_own(owner)
        ]

    def _is_own(self, owner: bytes) -> bool:
        return owner.startswith(f"{self._consumer_id}-".encode())

    def _await_release(self, topic_partitions: Sequence[TopicPartition]) -> None:
        nodes = [self._owner_path(tp) for tp in topic_partitions]
        for node, owner in zip(nodes, self._values(nodes), strict=True):
            if owner is not None and not self._is_own(owner):
                # One watch is enough: an owner releases all its partitions together.
                if self._session.request(exists(node, self._handle_event)) is None:
                    self._on_change()
                return
        self._on_change()

    def _values(self, nodes: Sequence[str], deadline: Deadline | None = None) -> list[bytes | None]:
        """Return the content of each node; None for a missing one."""
        answers = self._session.request_all((get(node) for node in nodes), deadline)
        return [None if answer is None else answer[0] for answer in answers]


def watch_brokers(
    session: ZooKeeperSession, topics: Iterable[str], on_change: Callable[[], None]
) -> None:
    """Call `on_change` once when brokers or topics are added, removed or changed.

    Brokers that are registered elsewhere, or nowhere, cannot be watched.

    Raises:
        RegistryUnavailable: ZooKeeper did not answer.
    """

    def handle_event(_: WatchedEvent) -> None:
        on_change()

    with contextlib.suppress(NoNodeError):
        for parent in (paths.BROKER_IDS, paths.BROKER_TOPICS):
            session.request(children(parent, handle_event))
        for topic in topics:
            session.request(exists(paths.topic(topic), handle_event))


@contextlib.contextmanager
def _missing_node_as_not_registered() -> Iterator[None]:
    try:
        yield
    except NoNodeError:
        raise NotRegistered from None


def _batches(topic_partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    ordered = sorted(topic_partitions)
    for start in range(0, len(ordered), PARTITIONS_PER_TRANSACTION):
        yield ordered[start : start + PARTITIONS_PER_TRANSACTION]


def _format_registration(subscription: Mapping[str, int]) -> bytes:
    fields = {
        "version": 1,
        "subscription": dict(subscription),
        "pattern": "static",
        "timestamp": str(time.time_ns() // 1_000_000),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _parse_registration(consumer_id: str, value: bytes) -> dict[str, int]:
    """Return the streams of a consumer; none if its registration has another format."""
    try:
        fields = json.loads(value)
        if fields["pattern"] != "static":
            raise ValueError("subscription by pattern is not supported")
        streams = {str(topic): int(count) for topic, count in fields["subscription"].items()}
        if not all(1 <= count <= STREAMS_MAX for count in streams.values()):
            raise ValueError(f"invalid number of streams: {streams}; maximum {STREAMS_MAX}")
        return streams
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("ignored registration consumer=%s: %r", consumer_id, error)
        return {}


def _parse_offset(tp: TopicPartition, value: bytes | None) -> int | None:
    try:
        offset = None if value is None else parse_offset(value.decode()).offset
        # A negative offset is a request to start as without one.
        return None if offset is None or offset < 0 else offset
    except ValueError as error:
        _log.error("ignored malformed offset partition=%s: %s", tp, error)
        return None
