"""The first offset of a log and the one after its last record, asked from its leader.

`Consumer.get_watermark_offsets` sends two requests. If one of them fails and the other does not, it
may return the successful one's offset for both (librdkafka 2.16): an empty log, in front of which
or behind which every position is out of range.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_END_OFFSET: Final = -1
_BEGINNING_OFFSET: Final = -2


class Bounds(NamedTuple):
    """The offsets `[low, high)` of a partition."""

    low: int
    high: int


def fetch_bounds(consumer: Consumer, topic: str, partition: int, timeout_s: float) -> Bounds:
    """Return the bounds of a partition, in two requests one after the other.

    Raises:
        KafkaException: the leader does not answer, or refuses.
    """
    return fetch_all_bounds(consumer, topic, [partition], timeout_s)[partition]


def fetch_all_bounds(
    consumer: Consumer, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, Bounds]:
    """Return the bounds of partitions, in two requests to each leader.

    Raises:
        KafkaException: a leader does not answer, or refuses.
    """
    lows, highs = (
        _fetch_offsets(consumer, topic, partitions, which, timeout_s)
        for which in (_BEGINNING_OFFSET, _END_OFFSET)
    )
    return {partition: Bounds(low, highs[partition]) for partition, low in lows.items()}


def _fetch_offsets(
    consumer: Consumer, topic: str, partitions: Sequence[int], which: int, timeout_s: float
) -> dict[int, int]:
    asked = [TopicPartition(topic, partition, which) for partition in partitions]
    found = consumer.offsets_for_times(asked, timeout=timeout_s)
    for tp in found:
        if tp.error is not None:
            raise KafkaException(tp.error)
        # If a broker is down, an invalid offset may be the only sign.
        if tp.offset < 0:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001
    return {tp.partition: tp.offset for tp in found}
