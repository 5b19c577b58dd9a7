"""Keeps a snapshot of ZooKeeper's nodes up to date; re-reads only what has changed."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from logbroker.errors import InvalidTopic
from logbroker.registry.acl_payloads import DENY_ALL, parse_acls
from logbroker.registry.cluster import COORDINATION_SLOTS
from logbroker.registry.quota_payloads import parse_quotas
from logbroker.registry.topic import Topic, check_topic_name
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.payloads import (
    parse_broker,
    parse_holder,
    parse_settings,
    parse_topic,
)
from logbroker.registry.zookeeper.session import ZooKeeperSession, children, exists, get
from logbroker.registry.zookeeper.snapshot import (
    NO_FENCE,
    BrokerNode,
    ElectedNode,
    SlotNode,
    Snapshot,
)
from logbroker.security.users import NO_USERS, parse_users

ALL_SLOTS: Final = [paths.slot(number) for number in range(COORDINATION_SLOTS)]
EVERYTHING: Final = (
    paths.BROKER_IDS,
    paths.BROKER_TOPICS,
    paths.CONTROLLER,
    paths.ACLS,
    paths.USERS,
    paths.QUOTAS,
    *ALL_SLOTS,
)

_log = logging.getLogger(__name__)


class ViewWatcher:
    """The snapshot as last read.

    Dirty paths are those that may have changed: the broker list, the topic list, a topic, the
    controller, a slot, the ACLs, the users or the quotas. A watch that fires adds one, from any
    thread. `refresh` reads all dirty paths and sets their watches again, on its caller's thread.
    `on_dirty` is called when there is something to refresh.
    """

    def __init__(self, session: ZooKeeperSession, on_dirty: Callable[[], None]) -> None:
        self._session = session
        self._on_dirty = on_dirty
        self._snapshot = Snapshot()
        # Names of the watched nodes, including those that are not valid topics.
        self._known_topics: set[str] = set()
        self._dirty: set[str] = set()
        self._lock = Lock()

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot; thread-safe."""
        return self._snapshot

    def mark_dirty(self, dirty: Iterable[str]) -> None:
        """Make the next refresh read these paths."""
        with self._lock:
            self._dirty.update(dirty)

    def mark_all_dirty(self) -> None:
        """Make the next refresh read everything, because every watch was lost."""
        self._known_topics.clear()
        self.mark_dirty(EVERYTHING)

    def refresh(self) -> None:
        """Read the dirty paths.

        Raises:
            RegistryUnavailable: they could not be read, and remain dirty.
        """
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        try:
            self._read(dirty)
        except BaseException:
            self.mark_dirty(dirty)
            raise

    def _read(self, dirty: set[str]) -> None:
        if paths.BROKER_IDS in dirty:
            self._read_brokers()
        if paths.CONTROLLER in dirty:
            self._read_controller()
        if paths.ACLS in dirty:
            self._read_acls()
        if paths.USERS in dirty:
            self._read_users()
        if paths.QUOTAS in dirty:
            self._read_quotas()
        self._read_slots([n for n, path in enumerate(ALL_SLOTS) if path in dirty])
        if paths.BROKER_TOPICS in dirty:
            self._read_topic_names()
        prefix = f"{paths.BROKER_TOPICS}/"
        named = {path.removeprefix(prefix) for path in dirty if path.startswith(prefix)}
        self._read_topics(named & self._known_topics)

    def _handle_event(self, event: WatchedEvent) -> None:
        # An event without a type means that the connection and all its watches are lost.
        if event.type != EventType.NONE:
            self.mark_dirty([_part(event.path)])
            self._on_dirty()

    def _read_brokers(self) -> None:
        names = self._session.request(children(paths.BROKER_IDS, self._handle_event))
        ids = [int(name) for name in names if name.isascii() and name.isdigit()]
        answers = self._session.request_all(
            get(paths.broker(each), self._handle_event) for each in ids
        )
        brokers = {
            broker_id: _broker_node(broker_id, *answer)
            for broker_id, answer in zip(ids, answers, strict=True)
            if answer is not None
        }
        self._snapshot = replace(self._snapshot, brokers=brokers)

    def _read_controller(self) -> None:
        _, answer = self._session.request_all(
            [exists(paths.CONTROLLER, self._handle_event), get(paths.CONTROLLER)]
        )
        self._snapshot = replace(self._snapshot, controller=_elected_node(paths.CONTROLLER, answer))

    def _read_slots(self, numbers: list[int]) -> None:
        # Read the holder before the fence. A broker that sees itself as the holder then has the
        # fence of its own claim, because a held slot cannot be claimed.
        answers = self._session.request_all(
            request
            for number in numbers
            for request in (
                exists(paths.slot_holder(number), self._handle_event),
                get(paths.slot_holder(number)),
                get(paths.slot(number)),
            )
        )
        slots = list(self._snapshot.slots)
        for number, holder, slot in zip(numbers, answers[1::3], answers[2::3], strict=True):
            fence = NO_FENCE if slot is None else slot[1].version
            slots[number] = SlotNode(_elected_node(paths.slot_holder(number), holder), fence)
        self._snapshot = replace(self._snapshot, slots=tuple(slots))

    def _read_acls(self) -> None:
        (answer,) = self._session.request_all([get(paths.ACLS, self._handle_event)])
        try:
            if answer is None:
                raise ValueError("it does not exist")
            acls = parse_acls(answer[0])
        except ValueError as error:
            _log.error("%s is unreadable, only super users have access: %s", paths.ACLS, error)
            acls = DENY_ALL
        if acls != self._snapshot.acls:
            self._snapshot = replace(self._snapshot, acls=acls)

    def _read_users(self) -> None:
        (answer,) = self._session.request_all([get(paths.USERS, self._handle_event)])
        try:
            if answer is None:
                raise ValueError("it does not exist")
            users = parse_users(answer[0])
        except ValueError as error:
            _log.error("%s is unreadable, no user can authenticate: %s", paths.USERS, error)
            users = NO_USERS
        if users != self._snapshot.users:
            self._snapshot = replace(self._snapshot, users=users)

    def _read_quotas(self) -> None:
        (answer,) = self._session.request_all([get(paths.QUOTAS, self._handle_event)])
        try:
            if answer is None:
                raise ValueError("it does not exist")
            quotas = parse_quotas(answer[0])
        except ValueError as error:
            _log.error("%s is unreadable, the quotas stay as they were: %s", paths.QUOTAS, error)
            return
        if quotas != self._snapshot.quotas:
            self._snapshot = replace(self._snapshot, quotas=quotas)

    def _read_topic_names(self) -> None:
        names = set(self._session.request(children(paths.BROKER_TOPICS, self._handle_event)))
        self._update_topics(dict.fromkeys(self._snapshot.topics.keys() - names))
        self._snapshot = replace(self._snapshot, unreadable=self._snapshot.unreadable & names)
        self._known_topics &= names
        self._read_topics(names - self._known_topics)

    def _read_topics(self, names: Iterable[str]) -> None:
        ordered = sorted(names)
        if not ordered:
            return
        answers = self._session.request_all(
            get(path, self._handle_event)
            for name in ordered
            for path in (paths.topic(name), paths.topic_config(name))
        )
        nodes = list(zip(ordered, answers[::2], answers[1::2], strict=True))
        read = {name: topic and _topic(name, topic[0], config) for name, topic, config in nodes}
        self._update_topics(read)
        there = {name for name, topic, _ in nodes if topic is not None}
        # A deleted topic has no watch; if it returns, it is found by its name.
        self._known_topics = self._known_topics.difference(ordered) | there
        broken = {name for name in there if read[name] is None}
        self._snapshot = replace(
            self._snapshot, unreadable=self._snapshot.unreadable.difference(ordered) | broken
        )
        self._watch_for_settings([name for name, _, config in nodes if config is None])

    def _update_topics(self, read: Mapping[str, Topic | None]) -> None:
        """Merge topics into the snapshot; None removes a topic."""
        topics = self._snapshot.topics
        changed = {name: each for name, each in read.items() if topics.get(name) != each}
        if changed:
            self._snapshot = replace(self._snapshot, topics=topics.changed(changed))

    def _watch_for_settings(self, names: list[str]) -> None:
        """Watch for settings of topics that had none when they were read."""
        answers = self._session.request_all(
            exists(paths.topic_config(name), self._handle_event) for name in names
        )
        came = [n for n, answer in zip(names, answers, strict=True) if answer is not None]
        if came:
            self.mark_dirty(paths.topic(name) for name in came)
            self._on_dirty()


def _part(path: str) -> str:
    """Return the dirty path that covers the path of a node."""
    if path.startswith(f"{paths.BROKER_IDS}/"):
        return paths.BROKER_IDS
    if path.startswith(f"{paths.TOPIC_CONFIGS}/"):
        return paths.topic(path.removeprefix(f"{paths.TOPIC_CONFIGS}/"))
    if path.startswith(f"{paths.SLOTS}/"):
        return path.removesuffix("/holder")
    return path


def _broker_node(broker_id: int, content: bytes, stat: ZnodeStat) -> BrokerNode:
    try:
        registration = parse_broker(broker_id, content)
    except ValueError as error:
        _log.warning("%s is not a valid broker: %s", paths.broker(broker_id), error)
        registration = None
    return BrokerNode(registration, stat.ephemeralOwner, stat.version)


def _elected_node(path: str, answer: Any) -> ElectedNode | None:
    if answer is None:
        return None
    content, stat = answer
    try:
        broker_id = parse_holder(content)
    except ValueError as error:
        _log.warning("%s does not name a broker: %s", path, error)
        broker_id = None
    return ElectedNode(broker_id, stat.ephemeralOwner)


def _topic(name: str, content: bytes, config: Any) -> Topic | None:
    try:
        check_topic_name(name)
        settings = MappingProxyType({}) if config is None else parse_settings(config[0])
        return parse_topic(name, content, settings)
    except (ValueError, InvalidTopic) as error:
        _log.warning("%s is skipped, it is not a valid topic: %s", paths.topic(name), error)
        return None
