"""The committed offsets of a consumer group in a topic, and the bounds of its partitions."""

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from app.config import Settings
from app.log.client_errors import CLIENT_LOG
from app.log.error_text import public_text
from app.log.errors import LogUnavailable
from app.log.reader_clients import reader_configuration
from logbroker.client.log_bounds import Bounds, fetch_all_bounds


class Committed(NamedTuple):
    """A committed offset, and the metadata that was committed with it."""

    position: int
    note: str


class GroupPosition(NamedTuple):
    """The position of a group in a partition; `committed` is None without one in the log."""

    committed: Committed | None
    bounds: Bounds


class GroupPositionReader:
    """Reads the positions of a consumer group from outside. Thread-safe; blocks.

    It joins no group and commits nothing.
    """

    def __init__(self, settings: Settings, group: str, timeout_s: float) -> None:
        self._settings = settings
        self._group = group
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def positions(self, topic: str, partitions: Sequence[int]) -> dict[int, GroupPosition]:
        """Return the positions of the group in some partitions.

        Raises:
            LogUnavailable: the log does not answer, or refuses the request.
        """
        try:
            return fetch_positions(self._client(), topic, partitions, self._timeout_s)
        except KafkaException as refusal:
            raise self._unavailable(refusal) from refusal

    def is_committed_in_all(self, topic: str) -> bool:
        """Whether the group has a committed offset in every partition of a topic.

        Raises:
            LogUnavailable: the log does not answer, or refuses the request.
        """
        try:
            found = self._client().list_topics(topic, self._timeout_s).topics[topic]
        except KafkaException as refusal:
            raise self._unavailable(refusal) from refusal
        positions = self.positions(topic, sorted(found.partitions))
        return bool(positions) and all(each.committed for each in positions.values())

    def _unavailable(self, refusal: KafkaException) -> LogUnavailable:
        return LogUnavailable(f"group {self._group}: {public_text(refusal.args[0])}")

    def _client(self) -> Consumer:
        with self._lock:
            if self._consumer is None:
                settings = self._settings
                properties = {"client.id": "rewind-positions", **settings.kafka_properties}
                configuration = reader_configuration(settings.bootstrap_servers, properties)
                configuration["group.id"] = self._group
                self._consumer = Consumer(configuration, logger=CLIENT_LOG)
            return self._consumer


def fetch_positions(
    consumer: Consumer, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, GroupPosition]:
    """Return the committed offsets of the consumer's group, and the bounds of the log.

    Raises:
        KafkaException: the coordinator or a leader does not answer.
    """
    asked = [TopicPartition(topic, partition) for partition in partitions]
    stored = consumer.committed(asked, timeout=timeout_s)
    for tp in stored:
        if tp.error is not None:
            raise KafkaException(tp.error)
    return _joined(stored, fetch_all_bounds(consumer, topic, partitions, timeout_s))


def _joined(
    stored: Sequence[TopicPartition], bounds_of: Mapping[int, Bounds]
) -> dict[int, GroupPosition]:
    positions: dict[int, GroupPosition] = {}
    for tp in stored:
        bounds = bounds_of[tp.partition]
        # An offset above the end is of a recreated topic, or of a truncated log.
        is_in_log = 0 <= tp.offset <= bounds.high
        committed = Committed(tp.offset, tp.metadata or "") if is_in_log else None
        positions[tp.partition] = GroupPosition(committed, bounds)
    return positions
