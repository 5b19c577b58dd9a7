"""The committed offsets of a consumer group in a topic, and the bounds of its partitions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from logbroker.client.log_bounds import Bounds, fetch_all_bounds


class Committed(NamedTuple):
    """A committed offset, and the metadata that was committed with it."""

    position: int
    note: str


class GroupPosition(NamedTuple):
    """The position of a group in a partition; `committed` is None without one in the log."""

    committed: Committed | None
    bounds: Bounds


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
