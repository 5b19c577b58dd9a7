"""Keeps what is known of ZooKeeper's nodes up to date, reading again only what has changed."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from logbroker.errors import InvalidTopic
from logbroker.registry.cluster import COORDINATION_SLOTS
from logbroker.registry.topic import Topic, check_topic_name
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.facts import (
    NO_FENCE,
    BrokerNode,
    Facts,
    OfficeNode,
    SlotNode,
)
from logbroker.registry.zookeeper.payloads import (
    parse_broker,
    parse_elected,
    parse_settings,
    parse_topic,
)
from logbroker.registry.zookeeper.session import ZooKeeperSession, children, exists, get

ALL_SLOTS: Final = [paths.slot(number) for number in range(COORDINATION_SLOTS)]
EVERYTHING: Final = (paths.BROKER_IDS, paths.BROKER_TOPICS, paths.CONTROLLER, *ALL_SLOTS)

_log = logging.getLogger(__name__)


class ViewWatcher:
    """The facts as they were last read.

    What may have changed is a set of paths, each the one of a broker list, a topic list, a
    topic, an office or a slot. A watch that fires adds to it, from any thread; `refresh` reads
    all of it and sets the watches again, on the one thread of its caller. `on_dirty` is called
    when there is something to refresh.
    """

    def __init__(self, session: ZooKeeperSession, on_dirty: Callable[[], None]) -> None:
        self._session = session
        self._on_dirty = on_dirty
        self._facts = Facts()
        # Names of the nodes that are watched, those that hold no topic included.
        self._known_topics: set[str] = set()
        self._dirty: set[str] = set()
        self._lock = Lock()

    @property
    def facts(self) -> Facts:
        """Any thread may read them."""
        return self._facts

    def mark(self, dirty: Iterable[str]) -> None:
        """Have the next refresh read these paths."""
        with self._lock:
            self._dirty.update(dirty)

    def mark_everything(self) -> None:
        """Have the next refresh read all there is: every watch was lost."""
        self._known_topics.clear()
        self.mark(EVERYTHING)

    def refresh(self) -> None:
        """Read what may have changed.

        Raises:
            RegistryUnavailable: it could not be read; it stays to be read.
        """
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        try:
            self._read(dirty)
        except BaseException:
            self.mark(dirty)
            raise

    def _read(self, dirty: set[str]) -> None:
        if paths.BROKER_IDS in dirty:
            self._read_brokers()
        if paths.CONTROLLER in dirty:
            self._read_controller()
        self._read_slots([n for n, path in enumerate(ALL_SLOTS) if path in dirty])
        if paths.BROKER_TOPICS in dirty:
            self._read_topic_names()
        prefix = f"{paths.BROKER_TOPICS}/"
        named = {path.removeprefix(prefix) for path in dirty if path.startswith(prefix)}
        self._read_topics(named & self._known_topics)

    def _changed(self, event: WatchedEvent) -> None:
        # Without a type it says that the connection is gone, and with it every watch.
        if event.type != EventType.NONE:
            self.mark([_part(event.path)])
            self._on_dirty()

    def _read_brokers(self) -> None:
        names = self._session.ask(children(paths.BROKER_IDS, self._changed))
        ids = [int(name) for name in names if name.isascii() and name.isdigit()]
        answers = self._session.ask_all(get(paths.broker(each), self._changed) for each in ids)
        brokers = {
            broker_id: _broker_node(broker_id, *answer)
            for broker_id, answer in zip(ids, answers, strict=True)
            if answer is not None
        }
        self._facts = replace(self._facts, brokers=brokers)

    def _read_controller(self) -> None:
        _, answer = self._session.ask_all(
            [exists(paths.CONTROLLER, self._changed), get(paths.CONTROLLER)]
        )
        self._facts = replace(self._facts, controller=_office_node(paths.CONTROLLER, answer))

    def _read_slots(self, numbers: list[int]) -> None:
        # The holder before the fence: who finds itself the holder has the fence of its claim,
        # since nobody claims while a holder is there.
        answers = self._session.ask_all(
            request
            for number in numbers
            for request in (
                exists(paths.slot_holder(number), self._changed),
                get(paths.slot_holder(number)),
                get(paths.slot(number)),
            )
        )
        slots = list(self._facts.slots)
        for number, holder, slot in zip(numbers, answers[1::3], answers[2::3], strict=True):
            fence = NO_FENCE if slot is None else slot[1].version
            slots[number] = SlotNode(_office_node(paths.slot_holder(number), holder), fence)
        self._facts = replace(self._facts, slots=tuple(slots))

    def _read_topic_names(self) -> None:
        names = set(self._session.ask(children(paths.BROKER_TOPICS, self._changed)))
        self._take_topics(dict.fromkeys(self._facts.topics.keys() - names))
        self._facts = replace(self._facts, unreadable=self._facts.unreadable & names)
        self._known_topics &= names
        self._read_topics(names - self._known_topics)

    def _read_topics(self, names: Iterable[str]) -> None:
        ordered = sorted(names)
        if not ordered:
            return
        answers = self._session.ask_all(
            get(path, self._changed)
            for name in ordered
            for path in (paths.topic(name), paths.topic_config(name))
        )
        nodes = list(zip(ordered, answers[::2], answers[1::2], strict=True))
        read = {name: topic and _topic(name, topic[0], config) for name, topic, config in nodes}
        self._take_topics(read)
        there = {name for name, topic, _ in nodes if topic is not None}
        # One that is gone has no watch: it has to be found among the names again.
        self._known_topics = self._known_topics.difference(ordered) | there
        broken = {name for name in there if read[name] is None}
        self._facts = replace(
            self._facts, unreadable=self._facts.unreadable.difference(ordered) | broken
        )
        self._watch_for_settings([name for name, _, config in nodes if config is None])

    def _take_topics(self, read: Mapping[str, Topic | None]) -> None:
        """Put what was read in the place of what was known; None for a topic that is not there."""
        topics = self._facts.topics
        changed = {name: each for name, each in read.items() if topics.get(name) != each}
        if changed:
            merged = {**topics, **changed}
            kept = {name: topic for name, topic in merged.items() if topic is not None}
            self._facts = replace(self._facts, topics=MappingProxyType(kept))

    def _watch_for_settings(self, names: list[str]) -> None:
        """Hear of settings that are given to topics which had none when they were read."""
        answers = self._session.ask_all(
            exists(paths.topic_config(name), self._changed) for name in names
        )
        came = [n for n, answer in zip(names, answers, strict=True) if answer is not None]
        if came:
            self.mark(paths.topic(name) for name in came)
            self._on_dirty()


def _part(path: str) -> str:
    """Which of the paths that can be dirty a node's path belongs to."""
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
        _log.warning("%s holds no broker: %s", paths.broker(broker_id), error)
        registration = None
    return BrokerNode(registration, stat.ephemeralOwner, stat.version)


def _office_node(path: str, answer: Any) -> OfficeNode | None:
    if answer is None:
        return None
    content, stat = answer
    try:
        broker_id = parse_elected(content)
    except ValueError as error:
        _log.warning("%s names no broker: %s", path, error)
        broker_id = None
    return OfficeNode(broker_id, stat.ephemeralOwner)


def _topic(name: str, content: bytes, config: Any) -> Topic | None:
    try:
        check_topic_name(name)
        settings = MappingProxyType({}) if config is None else parse_settings(config[0])
        return parse_topic(name, content, settings)
    except (ValueError, InvalidTopic) as error:
        _log.warning("%s is left out, its nodes hold no topic: %s", paths.topic(name), error)
        return None
