"""Changes of topics, and allocation of producer ids; any broker may request them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import UUID, uuid4

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from logbroker.errors import (
    InvalidConfig,
    InvalidPartitions,
    RegistryUnavailable,
    RequestRefused,
    UnknownTopicOrPartition,
)
from logbroker.registry.registry import Replicas, Settings
from logbroker.registry.topic import (
    Topic,
    check_growth,
    check_id,
    check_new_topic,
    check_topic_name,
    may_collide,
)
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.payloads import (
    format_producer_id_block,
    format_settings,
    format_topic,
    parse_next_producer_id,
    parse_settings,
    parse_topic,
)
from logbroker.registry.zookeeper.session import (
    REQUEST_S,
    Deadline,
    RequestTooLarge,
    ZooKeeperSession,
    children,
    get,
)

_CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""Another broker changed the nodes after they were read."""

NO_SETTINGS: Final = format_settings({})

Result = TypeVar("Result")

Versioned = tuple[bytes, int]
"""The content of a node, and its version."""


class TopicStore:
    """Topics below `/brokers/topics` and `/config/topics`, and the block of producer ids.

    `check_session` raises RegistryUnavailable unless the session belongs to the broker's cluster.
    """

    def __init__(
        self, session: ZooKeeperSession, broker_id: int, check_session: Callable[[], None]
    ) -> None:
        self._session = session
        self._broker_id = broker_id
        self._check_session = check_session

    def create(self, name: str, replicas: Replicas, settings: Settings) -> Topic:
        """See `Registry.create_topic`."""
        topic = Topic(name, uuid4(), _frozen(replicas), MappingProxyType(dict(settings)))

        def attempt(deadline: Deadline) -> None:
            check_new_topic(name, self._names_to_check(name, deadline))
            # Kafka's tools can write settings before their topic exists.
            config = self._content(paths.topic_config(name))
            transaction = self._session.transaction()
            transaction.create(paths.topic(name), format_topic(topic))
            _put(transaction, paths.topic_config(name), format_settings(settings), config)
            self._session.commit_once(transaction, deadline)

        with _reject_too_large_as(InvalidPartitions, name):
            self._until_done(attempt)
        return topic

    def delete(self, name: str, topic_id: UUID | None) -> None:
        """See `Registry.delete_topic`."""

        def attempt(deadline: Deadline) -> None:
            content = self._content(paths.topic(name))
            if content is None:
                raise UnknownTopicOrPartition(f"unknown topic {name!r}")
            if topic_id is not None:
                check_id(self._read(name)[0], topic_id)
            transaction = self._session.transaction()
            for path in self._below(paths.topic(name)):
                transaction.delete(path)
            transaction.delete(paths.topic(name), content[1])
            if self._content(paths.topic_config(name)) is not None:
                transaction.delete(paths.topic_config(name))
            self._session.commit_once(transaction, deadline)

        self._until_done(attempt)

    def grow(self, name: str, replicas: Replicas) -> Topic:
        """See `Registry.grow_topic`."""

        def attempt(deadline: Deadline) -> Topic:
            topic, version, _ = self._read(name)
            check_growth(topic, replicas)
            grown = replace(topic, replicas=_frozen(replicas))
            transaction = self._session.transaction()
            transaction.set_data(paths.topic(name), format_topic(grown), version)
            self._session.commit_once(transaction, deadline)
            return grown

        with _reject_too_large_as(InvalidPartitions, name):
            return self._until_done(attempt)

    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> Topic:
        """See `Registry.change_settings`."""

        def attempt(deadline: Deadline) -> Topic:
            topic, version, config = self._read(name)
            changed = replace(topic, settings=MappingProxyType(dict(change(topic.settings))))
            transaction = self._session.transaction()
            transaction.check(paths.topic(name), version)
            _put(transaction, paths.topic_config(name), format_settings(changed.settings), config)
            self._session.commit_once(transaction, deadline)
            return changed

        with _reject_too_large_as(InvalidConfig, name):
            return self._until_done(attempt)

    def allocate_producer_ids(self, count: int) -> range:
        """See `Registry.allocate_producer_ids`."""

        def attempt(deadline: Deadline) -> range:
            last = self._content(paths.PRODUCER_ID_BLOCK)
            first = 0 if last is None else _next_producer_id(last[0])
            block = range(first, first + count)
            transaction = self._session.transaction()
            content = format_producer_id_block(self._broker_id, block)
            _put(transaction, paths.PRODUCER_ID_BLOCK, content, last)
            # A repeated commit only wastes a block.
            self._session.commit(transaction, deadline)
            # Another cluster would allocate ids that producers of this one already use.
            self._check_session()
            return block

        return self._until_done(attempt)

    def _names_to_check(self, name: str, deadline: Deadline) -> Sequence[str]:
        """Return the names of topics that rule out this one.

        All names are listed only for one that may collide with another, as in Kafka.
        """
        check_topic_name(name)
        if may_collide(name):
            names: Sequence[str] = self._session.request(children(paths.BROKER_TOPICS), deadline)
            return names
        return () if self._content(paths.topic(name)) is None else (name,)

    def _below(self, path: str) -> list[str]:
        """Return every node below one, children first: Kafka creates some, logbroker none."""
        found: list[str] = []
        for name in self._session.request_all([children(path)])[0] or ():
            found += [*self._below(f"{path}/{name}"), f"{path}/{name}"]
        return found

    def _read(self, name: str) -> tuple[Topic, int, Versioned | None]:
        """Return a topic, the version of its node, and the node of its settings, if any."""
        answer, config = self._content(paths.topic(name)), self._content(paths.topic_config(name))
        try:
            if answer is not None:
                settings = parse_settings(NO_SETTINGS if config is None else config[0])
                return parse_topic(name, answer[0], settings), answer[1], config
        except ValueError:
            pass  # the view omits it as well
        raise UnknownTopicOrPartition(f"unknown topic {name!r}")

    def _content(self, path: str) -> Versioned | None:
        (answer,) = self._session.request_all([get(path)])
        return None if answer is None else (answer[0], answer[1].version)

    def _until_done(self, attempt: Callable[[Deadline], Result]) -> Result:
        """Run `attempt`, and repeat it as long as another broker interferes."""
        deadline = Deadline.after(REQUEST_S)
        while deadline.remaining_s > 0:
            self._check_session()
            try:
                return attempt(deadline)
            except _CONFLICTS:
                continue
        raise RegistryUnavailable("too many concurrent changes of the same nodes")


def _put(
    transaction: TransactionRequest, path: str, content: bytes, before: Versioned | None
) -> None:
    """Create a node, or set it if it still has its earlier version."""
    if before is None:
        transaction.create(path, content)
    else:
        transaction.set_data(path, content, before[1])


def _frozen(replicas: Replicas) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each) for each in replicas)


@contextmanager
def _reject_too_large_as(refusal: type[RequestRefused], name: str) -> Iterator[None]:
    try:
        yield
    except RequestTooLarge as error:
        raise refusal(f"topic {name!r}: {error}") from None


def _next_producer_id(content: bytes) -> int:
    try:
        return parse_next_producer_id(content)
    except ValueError as error:
        raise RegistryUnavailable(f"{paths.PRODUCER_ID_BLOCK} is malformed: {error}") from None
