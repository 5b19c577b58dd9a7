"""Notices that patterns choose other topics of the source than before."""

import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from logbroker.mirror.topic_choice import TopicChoice

LOOK_S: Final = 5.0
"""Time between two looks."""

ANSWER_S: Final = 1.0
"""How long a look may hold up copying; the next one follows soon."""


def partition_counts(source: AdminClient, timeout_s: float) -> dict[str, int]:
    """By topic, how many partitions there are; without topics that are just being made.

    Raises:
        KafkaException: the source does not answer.
    """
    topics = source.list_topics(timeout=timeout_s).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}


class TopicWatch:
    """What patterns found, and whether they still do."""

    def __init__(self, source: AdminClient, choice: TopicChoice, found: Collection[str]) -> None:
        self._source = source
        self._choice = choice
        self._found = frozenset(found)
        self._next_s = time.monotonic() + LOOK_S

    def has_changed(self) -> bool:
        """Whether they find others by now; looks now and then, and waits for the answer."""
        if not self._choice.has_patterns or time.monotonic() < self._next_s:
            return False
        now = self._found
        # A source that is away is waited for by those that read.
        with suppress(KafkaException):
            now = frozenset(self._choice.found(partition_counts(self._source, ANSWER_S)))
        self._next_s = time.monotonic() + LOOK_S
        return now != self._found
