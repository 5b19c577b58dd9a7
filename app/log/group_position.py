"""The committed offsets of a consumer group in a topic, and the bounds of its partitions."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

_END_OFFSET: Final = -1
_BEGINNING_OFFSET: Final = -2


class Committed(NamedTuple):
    """A committed offset, and the metadata that was committed with it."""

    position: int
    note: str


class Bounds(NamedTuple):
    """The offsets `[low, high)` of a partition."""

    low: int
    high: int


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
    stored = consumer.committed(_at(topic, partitions, 0), timeout=timeout_s)
    _raise_errors(stored)
    return _joined(stored, _fetch_bounds(consumer, topic, partitions, timeout_s))


def _fetch_bounds(
    consumer: Consumer, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, Bounds]:
    """Return the bounds of partitions, in two requests to each leader."""
    lows, highs = (
        consumer.offsets_for_times(_at(topic, partitions, which), timeout=timeout_s)
        for which in (_BEGINNING_OFFSET, _END_OFFSET)
    )
    _raise_errors([*lows, *highs])
    high = {tp.partition: tp.offset for tp in highs}
    return {tp.partition: Bounds(tp.offset, high[tp.partition]) for tp in lows}


def _at(topic: str, partitions: Sequence[int], offset: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for partition in partitions]


def _raise_errors(topic_partitions: Sequence[TopicPartition]) -> None:
    for tp in topic_partitions:
        if tp.error is not None:
            raise KafkaException(tp.error)


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
