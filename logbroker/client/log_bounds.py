"""The first offset of a log and the one after its last record, asked from its leader.

`Consumer.get_watermark_offsets` sends two requests. If one of them fails and the other does not, it
may return the successful one's offset for both (librdkafka 2.16): an empty log, in front of which
or behind which every position is out of range.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_LATEST: Final = -1
_EARLIEST: Final = -2
"""The times in Kafka's ListOffsets that stand for the end and the beginning of a log."""


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
        _fetch_offsets(consumer, topic, partitions, time, timeout_s)
        for time in (_EARLIEST, _LATEST)
    )
    return {partition: Bounds(low, highs[partition]) for partition, low in lows.items()}


def fetch_log_ends(
    consumer: Consumer, topic_partitions: Iterable[tuple[str, int]], timeout_s: float
) -> dict[tuple[str, int], int]:
    """Return the offset after the last record of logs, without those whose leader does not answer.

    Raises:
        KafkaException: no leader answers.
    """
    asked = [TopicPartition(topic, partition, _LATEST) for topic, partition in topic_partitions]
    return {
        (each.topic, each.partition): each.offset
        for each in consumer.offsets_for_times(asked, timeout=timeout_s)
        # If a broker is down, an invalid offset may be the only sign.
        if each.error is None and each.offset >= 0
    }


def _fetch_offsets(
    consumer: Consumer, topic: str, partitions: Sequence[int], time: int, timeout_s: float
) -> dict[int, int]:
    asked = [TopicPartition(topic, partition, time) for partition in partitions]
    found = consumer.offsets_for_times(asked, timeout=timeout_s)
    for tp in found:
        if tp.error is not None:
            raise KafkaException(tp.error)
        if tp.offset < 0:  # see `fetch_log_ends`
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001
    return {tp.partition: tp.offset for tp in found}
