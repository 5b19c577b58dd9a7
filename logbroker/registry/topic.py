"""Topics of a cluster: their names, and the brokers of their partitions.

Source: Kafka, `org.apache.kafka.common.internals.Topic`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

from logbroker.errors import InvalidPartitions, InvalidTopic, TopicAlreadyExists, UnknownTopicId

# 249 leaves room for `-<partition>` in a directory name of at most 255 bytes.
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAME_RULE: Final = "1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .. alone"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `settings` holds what differs from the broker's defaults.

    `replicas[n]` are the ids of the brokers of partition n, its leader first; there is exactly one.
    A topic that was deleted and created again has another `topic_id`.
    """

    name: str
    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]
    settings: Mapping[str, str]

    @property
    def partitions(self) -> int:
        """The number of partitions; they are numbered from 0."""
        return len(self.replicas)


def check_topic_name(name: str) -> None:
    """Reject a name that Kafka does not allow.

    Raises:
        InvalidTopic: the name is empty, too long, `.` or `..`, or contains other characters.
    """
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopic(f"topic name is {name!r}; allowed is {_NAME_RULE}")


def check_new_topic(name: str, others: Collection[str]) -> None:
    """Reject a name that a new topic cannot have because of its syntax or of `others`.

    Raises:
        InvalidTopic: the name is not allowed, or differs from another only in `.` and `_`.
        TopicAlreadyExists: a topic has this name.
    """
    check_topic_name(name)
    if name in others:
        raise TopicAlreadyExists(f"topic {name!r} exists already")
    check_collision(name, others)


class TopicNames:
    """The names of a cluster's topics, to check new ones against.

    `others` are further names by their folded form.
    """

    def __init__(self, others: Mapping[str, str] = MappingProxyType({})) -> None:
        self._by_folded: dict[str, str] = {}
        self._others = others

    def extended(self) -> "TopicNames":
        """Return names to which further ones can be added, of which these learn nothing."""
        return TopicNames(self._by_folded)

    def add(self, name: str) -> None:
        """Add the name of a new topic."""
        self._by_folded[_folded(name)] = name

    def remove(self, name: str) -> None:
        """Remove the name of a deleted topic, unless a new one with a colliding name was added."""
        if self._by_folded.get(_folded(name)) == name:
            del self._by_folded[_folded(name)]

    def check(self, name: str) -> None:
        """Reject a name that a new topic cannot have.

        Raises:
            InvalidTopic: the name is not allowed, or differs from another only in `.` and `_`.
            TopicAlreadyExists: a topic has this name.
        """
        check_topic_name(name)
        folded = _folded(name)
        other = self._by_folded.get(folded) or self._others.get(folded)
        if other is not None:
            check_new_topic(name, (other,))


def check_id(topic: Topic, topic_id: UUID | None) -> None:
    """Reject a topic whose id differs from the requested one; None matches every id.

    Raises:
        UnknownTopicId: the topic has another id.
    """
    if topic_id not in (None, topic.topic_id):
        raise UnknownTopicId(f"unknown topic id {topic_id} of topic {topic.name!r}")


def check_growth(topic: Topic, replicas: Sequence[Sequence[int]]) -> None:
    """Reject `replicas` unless they keep the existing partitions and add new ones.

    Raises:
        InvalidPartitions: no partition is new, or an existing one would move.
    """
    if len(replicas) <= topic.partitions:
        raise InvalidPartitions(
            f"{topic.name}: partitions is {len(replicas)}; allowed is above {topic.partitions}"
        )
    if any(tuple(new) != old for new, old in zip(replicas, topic.replicas, strict=False)):
        raise InvalidPartitions(f"{topic.name}: existing partitions cannot move")


def may_collide(name: str) -> bool:
    """Whether another name can differ from this one only in `.` and `_`."""
    return "." in name or "_" in name


def check_collision(name: str, others: Iterable[str]) -> None:
    """Reject a name that metrics cannot distinguish from another name.

    Kafka's metrics replace `.` with `_`, so `a.b` and `a_b` would collide.

    Raises:
        InvalidTopic: one of `others` differs from the name only in `.` and `_`.
    """
    folded = _folded(name)
    for other in others:
        if other != name and _folded(other) == folded:
            raise InvalidTopic(
                f"topic name {name!r} collides with {other!r}: metrics treat . and _ as equal"
            )


def count_partitions(topics: Iterable[Topic]) -> Counter[int]:
    """Return the number of partitions on each broker."""
    return Counter(
        replica for topic in topics for replicas in topic.replicas for replica in replicas
    )


def place_partitions(
    count: int, brokers: Iterable[int], load: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    """Assign one broker to each of `count` partitions, the least loaded brokers first.

    The brokers take turns, so that a topic is spread evenly. `brokers` is not empty; `load` is the
    number of partitions that each has.
    """
    order = sorted(brokers, key=lambda broker: (load[broker], broker))
    return tuple((order[number % len(order)],) for number in range(count))


def _folded(name: str) -> str:
    return name.replace(".", "_")
