"""Topics of a cluster: their names, and the brokers of their partitions.

Source: Kafka, `org.apache.kafka.common.internals.Topic`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from logbroker.errors import InvalidPartitions, InvalidTopic, TopicAlreadyExists, UnknownTopicId

# 249 leaves room for `-<partition>` in the 255 bytes that a folder's name may have.
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAME_RULE: Final = "1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .. alone"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `settings` holds what differs from the broker's defaults.

    `replicas[n]` are the ids of the brokers that keep partition n, its leader first; there is
    exactly one. A topic that was deleted and created again has another `topic_id`.
    """

    name: str
    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]
    settings: Mapping[str, str]

    @property
    def partitions(self) -> int:
        """How many partitions there are; they are numbered from 0."""
        return len(self.replicas)


def check_topic_name(name: str) -> None:
    """Refuse a name that Kafka would not take.

    Raises:
        InvalidTopic: the name is empty, too long, `.` or `..`, or has other characters.
    """
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopic(f"topic name is {name!r}; allowed is {_NAME_RULE}")


def check_new_topic(name: str, others: Collection[str]) -> None:
    """Refuse a name that a new topic beside `others` cannot have.

    Raises:
        InvalidTopic: the name is not allowed, or differs from another in `.` and `_` alone.
        TopicAlreadyExists: a topic has this name.
    """
    check_topic_name(name)
    if name in others:
        raise TopicAlreadyExists(f"topic {name!r} exists already")
    check_collision(name, others)


def check_id(topic: Topic, topic_id: UUID | None) -> None:
    """Let pass the topic that was meant, where it was said by its id which one that is.

    Raises:
        UnknownTopicId: it is another one of the same name.
    """
    if topic_id not in (None, topic.topic_id):
        raise UnknownTopicId(f"topic {topic.name!r} with id {topic_id} is gone")


def check_growth(topic: Topic, replicas: Sequence[Sequence[int]]) -> None:
    """Refuse `replicas` unless they are those of the topic's partitions and of new ones.

    Raises:
        InvalidPartitions: nothing is new, or an old partition would move.
    """
    if len(replicas) <= topic.partitions:
        raise InvalidPartitions(
            f"{topic.name}: partitions is {len(replicas)}; allowed is above {topic.partitions}"
        )
    if any(tuple(new) != old for new, old in zip(replicas, topic.replicas, strict=False)):
        raise InvalidPartitions(f"{topic.name}: partitions that it has already cannot move")


def check_collision(name: str, others: Iterable[str]) -> None:
    """Refuse a name that metrics could not tell from another one's.

    Kafka's metrics have `_` for `.`, so `a.b` and `a_b` would be one.

    Raises:
        InvalidTopic: one of `others` has the same letters but for `.` and `_`.
    """
    folded = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == folded:
            raise InvalidTopic(f"topic name {name!r} collides with {other!r}: . and _ are alike")


def place_partitions(
    count: int, brokers: Iterable[int], topics: Iterable[Topic]
) -> tuple[tuple[int, ...], ...]:
    """One broker for each of `count` partitions, those with the fewest partitions first.

    In turn over all of `brokers`, of which there is at least one, so that a topic is spread as
    evenly as it can be; the partitions of `topics` decide who begins.
    """
    load = Counter(
        replica for topic in topics for replicas in topic.replicas for replica in replicas
    )
    order = sorted(brokers, key=lambda broker: (load[broker], broker))
    return tuple((order[number % len(order)],) for number in range(count))
