"""Detects changes of the source's topics: recreated topics, and others that match the patterns."""

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from logbroker.mirror.domain.topic_selection import TopicSelection

REQUEST_TIMEOUT_S: Final = 5.0

CHECK_S: Final = 5.0
"""Time between two checks; what was copied of a recreated topic meanwhile is copied again."""

MATCH_TIMEOUT_S: Final = 1.0
"""How long a check of the patterns may delay copying; the next one follows soon."""

_NO_ID: Final = "A" * 22
"""The id of topics on brokers without ids: sixteen zero bytes in base64."""

Descriptions = Mapping[str, "Future[TopicDescription]"]


def partition_counts(source: AdminClient, timeout_s: float) -> dict[str, int]:
    """Return the number of partitions by topic, without topics that are being created.

    Raises:
        KafkaException: the source does not answer.
    """
    topics = source.list_topics(timeout=timeout_s).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}


class TopicIds:
    """The ids that topics have when this is created, which waits for the answer.

    Offsets of a recreated topic refer to other records; its name stays and its id changes
    (KIP-516). Brokers before Kafka 2.8 have no ids; there nothing is detected.

    Raises:
        KafkaException: the source does not answer.
    """

    def __init__(self, source: AdminClient, topics: Sequence[str]) -> None:
        self._source = source
        self._requested: Descriptions = {}
        self._next_s = time.monotonic() + CHECK_S
        self._ids = {name: _id(each) for name, each in self._describe(topics).items()}

    def id_of(self, topic: str) -> str:
        """Return the id of a topic; empty without one."""
        return self._ids.get(topic, "")

    def find_recreated(self) -> str | None:
        """Return a topic that has another id by now, as far as is known without waiting."""
        if all(each.done() for each in self._requested.values()):
            requested, self._requested = self._requested, {}
            for topic, each in requested.items():
                if each.exception() is None and _id(each) not in ("", self.id_of(topic)):
                    return topic
            if time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + CHECK_S
                self._requested = self._describe(list(self._ids))
        return None

    def _describe(self, topics: Sequence[str]) -> Descriptions:
        if not topics:
            return {}
        requested: Descriptions = self._source.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S
        )
        return requested


class PatternWatch:
    """Checks whether the patterns still match the same topics."""

    def __init__(
        self, source: AdminClient, selection: TopicSelection, matched: Collection[str]
    ) -> None:
        self._source = source
        self._selection = selection
        self._matched = frozenset(matched)
        self._next_s = time.monotonic() + CHECK_S

    def has_changed(self) -> bool:
        """Whether they match others by now; checks at intervals, and waits for the answer."""
        if not self._selection.has_patterns or time.monotonic() < self._next_s:
            return False
        matched = self._matched
        # The read loop waits for a source that is down.
        with suppress(KafkaException):
            counts = partition_counts(self._source, MATCH_TIMEOUT_S)
            matched = frozenset(self._selection.matching(counts))
        self._next_s = time.monotonic() + CHECK_S
        return matched != self._matched


def _id(requested: "Future[TopicDescription]") -> str:
    try:
        topic_id = str(requested.result().topic_id)
    except KafkaException as refusal:
        # A topic that was deleted in the meantime has no id, and no records.
        if refusal.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return ""
        raise
    return "" if topic_id == _NO_ID else topic_id
