"""Where a consumer group stands in the partitions of a topic, and what these hold."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

_END_OFFSET: Final = -1
_BEGINNING_OFFSET: Final = -2


class Committed(NamedTuple):
    """A position that the group has stored, and the note that was stored with it."""

    position: int
    note: str


class Bounds(NamedTuple):
    """The offsets `[low, high)` that a partition holds."""

    low: int
    high: int


class Position(NamedTuple):
    """Where a group stands in a partition; `committed` is None without a position in the log."""

    committed: Committed | None
    bounds: Bounds


def ask_positions(
    consumer: Consumer, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, Position]:
    """What the consumer's group has stored, and what the log holds, by partition.

    Raises:
        KafkaException: somebody who has to be asked does not answer.
    """

    def at(offset: int) -> list[TopicPartition]:
        return [TopicPartition(topic, partition, offset) for partition in partitions]

    stored = consumer.committed(at(0), timeout=timeout_s)
    lows, highs = (
        consumer.offsets_for_times(at(which), timeout=timeout_s)
        for which in (_BEGINNING_OFFSET, _END_OFFSET)
    )
    _expect_answers([*stored, *lows, *highs])
    return _joined(stored, lows, highs)


def _expect_answers(places: Sequence[TopicPartition]) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)


def _joined(
    stored: Sequence[TopicPartition],
    lows: Sequence[TopicPartition],
    highs: Sequence[TopicPartition],
) -> dict[int, Position]:
    low = {place.partition: place.offset for place in lows}
    high = {place.partition: place.offset for place in highs}
    positions: dict[int, Position] = {}
    for place in stored:
        bounds = Bounds(low[place.partition], high[place.partition])
        # A position beyond the end is one of another log that had this name, or of its lost end.
        is_in_log = 0 <= place.offset <= bounds.high
        committed = Committed(place.offset, place.metadata or "") if is_in_log else None
        positions[place.partition] = Position(committed, bounds)
    return positions
