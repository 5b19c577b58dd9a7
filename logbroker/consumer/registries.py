"""The paper's registries of one consumer group, as one of its consumers reads and writes them.

Paths and payloads are Kafka 0.8's. Every write is a transaction that checks the consumer's own
registration, which is ephemeral and has a name that no other session had: so nothing that was
asked for under one session is ever done under another.

| node under /consumers/<group> | kind | value |
| --- | --- | --- |
| ids/<consumer> | ephemeral | JSON: how many streams of each topic it reads |
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
    Request,
    ZooKeeperSession,
    children,
    exists,
    get,
)

_log: Final = logging.getLogger(__name__)

PLACES_AT_ONCE: Final = 100
"""Partitions in one transaction; however long the names, it stays below ZooKeeper's 1 MB."""

ANY_VERSION: Final = -1


class NotRegistered(Exception):
    """The consumer's registration, or what it needs beside it, is gone: nothing was written."""


def new_consumer_id(group_id: str) -> str:
    """A name that no consumer had before, in the likeness of Kafka 0.8's."""
    now_ms = time.time_ns() // 1_000_000
    unique = uuid.uuid4().hex[:16]
    return f"{paths.node_name(group_id)}_{socket.gethostname()}-{now_ms}-{os.getpid()}-{unique}"


class GroupRegistries:
    """One consumer's hand on its group's registries.

    All methods wait for ZooKeeper and may raise RegistryUnavailable: then what was asked for may
    have been done or not. Any may raise NotRegistered.
    """

    def __init__(
        self, session: ZooKeeperSession, group_id: str, changed: Callable[[], None]
    ) -> None:
        """`changed` is called, on a thread that must not wait, when what was read is outdated."""
        self._session = session
        self._group_id = group_id
        self._changed = changed
        self._consumer_id = ""

    def register(self, consumer_id: str, subscription: Mapping[str, int]) -> int:
        """Enter the consumer registry: the id of the session that the registration ends with.

        Registering again under the same name changes nothing.
        """
        self._consumer_id = consumer_id
        value = _format_registration(subscription)
        for parent in self._parents(subscription):
            self._session.request(_made(parent))
        with _translated(), contextlib.suppress(NodeExistsError):
            self._session.request(
                lambda client: client.create_async(self._own, value, ephemeral=True)
            )
        stat = self._session.request(exists(self._own))
        if stat is None:
            raise NotRegistered
        return int(stat.ephemeralOwner)

    def consumers(self) -> dict[str, dict[str, int]]:
        """The consumers of the group, and how many streams of which topic each reads.

        `changed` hears of the next one that comes or goes.
        """
        parent = paths.consumer_ids(self._group_id)
        with _translated():
            names = self._session.request(children(parent, self._hear))
        values = self._values([f"{parent}/{name}" for name in names])
        return {
            name: _parse_registration(name, value)
            for name, value in zip(names, values, strict=True)
            if value is not None
        }

    def claim(self, assignment: Assignment) -> bool:
        """Become the owner of every partition; False once one of them is another's.

        Then some may be ours, and `changed` hears when the other one's is free.
        """
        for places in _portions(assignment):
            transaction = self._transaction()
            for place in places:
                thread = assignment[place].encode()
                transaction.create(self._owner(place), thread, ephemeral=True)
            try:
                with _translated():
                    self._session.commit_once(transaction)
            except NodeExistsError:
                self._await_release(places)
                return False
        return True

    def release(
        self,
        places: Iterable[TopicPartition],
        offsets: Mapping[TopicPartition, int],
        deadline: Deadline | None = None,
    ) -> None:
        """Give up those of the partitions that are ours, storing their offsets in the same step."""
        for portion in _portions(places):
            ours = self._ours(portion, deadline)
            if not ours:
                continue
            transaction = self._transaction()
            self._put_offsets(transaction, {k: offsets[k] for k in ours if k in offsets}, deadline)
            for place in ours:
                transaction.delete(self._owner(place))
            self._write(transaction, deadline)

    def offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The stored offsets of partitions; those that have none are left out."""
        wanted = list(places)
        values = self._values([self._offset(place) for place in wanted])
        found = {place: _parse_offset(place, v) for place, v in zip(wanted, values, strict=True)}
        return {place: offset for place, offset in found.items() if offset is not None}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets of partitions that are ours."""
        for places in _portions(offsets):
            transaction = self._transaction()
            self._put_offsets(transaction, {place: offsets[place] for place in places})
            self._write(transaction)

    @property
    def _own(self) -> str:
        return f"{paths.consumer_ids(self._group_id)}/{self._consumer_id}"

    def _parents(self, topics: Iterable[str]) -> Iterator[str]:
        yield paths.consumer_ids(self._group_id)
        for topic in topics:
            yield paths.owners(self._group_id, topic)
            yield paths.topic_offsets(self._group_id, topic)

    def _owner(self, place: TopicPartition) -> str:
        topic, partition = place
        return f"{paths.owners(self._group_id, topic)}/{partition}"

    def _offset(self, place: TopicPartition) -> str:
        return paths.offset(self._group_id, *place)

    def _hear(self, _: WatchedEvent) -> None:
        self._changed()

    def _transaction(self) -> TransactionRequest:
        transaction = self._session.transaction()
        transaction.check(self._own, ANY_VERSION)
        return transaction

    def _write(self, transaction: TransactionRequest, deadline: Deadline | None = None) -> None:
        try:
            with _translated():
                self._session.commit_once(transaction, deadline)
        except NodeExistsError as error:
            raise RegistryUnavailable("somebody else stores offsets of this group") from error

    def _put_offsets(
        self,
        transaction: TransactionRequest,
        offsets: Mapping[TopicPartition, int],
        deadline: Deadline | None = None,
    ) -> None:
        nodes = {self._offset(place): offset for place, offset in offsets.items()}
        stats = self._session.request_all((exists(node) for node in nodes), deadline)
        for (node, offset), stat in zip(nodes.items(), stats, strict=True):
            value = format_offset(CommittedOffset(offset)).encode()
            if stat is None:
                transaction.create(node, value)
            else:
                transaction.set_data(node, value)

    def _ours(
        self, places: Sequence[TopicPartition], deadline: Deadline | None
    ) -> list[TopicPartition]:
        owners = self._values([self._owner(place) for place in places], deadline)
        return [
            place
            for place, owner in zip(places, owners, strict=True)
            if owner is not None and self._is_own(owner)
        ]

    def _is_own(self, owner: bytes) -> bool:
        return owner.startswith(f"{self._consumer_id}-".encode())

    def _await_release(self, places: Sequence[TopicPartition]) -> None:
        nodes = [self._owner(place) for place in places]
        for node, owner in zip(nodes, self._values(nodes), strict=True):
            if owner is not None and not self._is_own(owner):
                # One will do: whoever owns several gives them up together.
                if self._session.request(exists(node, self._hear)) is None:
                    self._changed()
                return
        self._changed()

    def _values(self, nodes: Sequence[str], deadline: Deadline | None = None) -> list[bytes | None]:
        """What each node holds; None for one that is not there."""
        answers = self._session.request_all((get(node) for node in nodes), deadline)
        return [None if answer is None else answer[0] for answer in answers]


def watch_brokers(
    session: ZooKeeperSession, topics: Iterable[str], changed: Callable[[], None]
) -> None:
    """Have `changed` called once when brokers or topics come, go or grow.

    Brokers that are registered elsewhere, or nowhere, cannot be watched.

    Raises:
        RegistryUnavailable: ZooKeeper did not answer.
    """

    def hear(_: WatchedEvent) -> None:
        changed()

    with contextlib.suppress(NoNodeError):
        for parent in (paths.BROKER_IDS, paths.BROKER_TOPICS):
            session.request(children(parent, hear))
        for topic in topics:
            session.request(exists(paths.topic(topic), hear))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except NoNodeError:
        raise NotRegistered from None


def _made(node: str) -> Request:
    return lambda client: client.ensure_path_async(node)


def _portions(places: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    ordered = sorted(places)
    for start in range(0, len(ordered), PLACES_AT_ONCE):
        yield ordered[start : start + PLACES_AT_ONCE]


def _format_registration(subscription: Mapping[str, int]) -> bytes:
    fields = {
        "version": 1,
        "subscription": dict(subscription),
        "pattern": "static",
        "timestamp": str(time.time_ns() // 1_000_000),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _parse_registration(consumer_id: str, value: bytes) -> dict[str, int]:
    """What a consumer reads: nothing, where it was not one of this kind that registered."""
    try:
        fields = json.loads(value)
        if fields["pattern"] != "static":
            raise ValueError("it names topics by a pattern")
        streams = {str(topic): int(count) for topic, count in fields["subscription"].items()}
        if not all(1 <= count <= STREAMS_MAX for count in streams.values()):
            raise ValueError(f"so many streams cannot be: {streams}")
        return streams
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("consumer %s is left out: %r", consumer_id, error)
        return {}


def _parse_offset(place: TopicPartition, value: bytes | None) -> int | None:
    try:
        return None if value is None else parse_offset(value.decode()).offset
    except ValueError as error:
        _log.error("the stored offset of %s is taken as none: %s", place, error)
        return None
