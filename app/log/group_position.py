"""The committed offsets of a consumer group in a topic, and the bounds of its partitions."""

from collections.abc import Sequence
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

    def at(offset: int) -> list[TopicPartition]:
        return [TopicPartition(topic, partition, offset) for partition in partitions]

    stored = consumer.committed(at(0), timeout=timeout_s)
    lows, highs = (
        consumer.offsets_for_times(at(which), timeout=timeout_s)
        for which in (_BEGINNING_OFFSET, _END_OFFSET)
    )
    _raise_errors([*stored, *lows, *highs])
    return _joined(stored, lows, highs)


def _raise_errors(places: Sequence[TopicPartition]) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)


def _joined(
    stored: Sequence[TopicPartition],
    lows: Sequence[TopicPartition],
    highs: Sequence[TopicPartition],
) -> dict[int, GroupPosition]:
    low = {place.partition: place.offset for place in lows}
    high = {place.partition: place.offset for place in highs}
    positions: dict[int, GroupPosition] = {}
    for place in stored:
        bounds = Bounds(low[place.partition], high[place.partition])
        # An offset above the end is of a recreated topic, or of a truncated log.
        is_in_log = 0 <= place.offset <= bounds.high
        committed = Committed(place.offset, place.metadata or "") if is_in_log else None
        positions[place.partition] = GroupPosition(committed, bounds)
    return positions
