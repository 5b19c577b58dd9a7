"""ListOffsets: the request for some partitions of one leader, and what its answer tells.

Source: Kafka protocol guide, "ListOffsets API"; KIP-79, KIP-207, KIP-320.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.offsets import ListOffsetsRequest

from logbroker.client.raw.directory import TopicPartition
from logbroker.wire.fetch_client import READ_COMMITTED, READ_UNCOMMITTED

EARLIEST: Final = -2
"""Instead of a time: where the log begins."""

LATEST: Final = -1
"""Instead of a time: the offset of the record that comes next."""

_CONSUMER: Final = -1
_NOT_FOUND: Final = -1
_Topic: Final = ListOffsetsRequest.ListOffsetsTopic


class WantedOffset(NamedTuple):
    """A time in milliseconds since 1970, EARLIEST or LATEST; and the leader's epoch, -1 unknown."""

    timestamp_ms: int
    leader_epoch: int


def list_offsets_request(
    wanted: Mapping[TopicPartition, WantedOffset], *, is_committed: bool
) -> Any:
    """One of kafka-python's requests for partitions that one broker leads."""
    topics = [
        _Topic(
            name=topic,
            partitions=[
                _Topic.ListOffsetsPartition(
                    partition_index=place.partition,
                    current_leader_epoch=wanted[place].leader_epoch,
                    timestamp=wanted[place].timestamp_ms,
                )
                for place in places
            ],
        )
        for topic, places in groupby(sorted(wanted), lambda place: place.topic)
    ]
    level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=level, topics=topics)


def answered_offsets(answer: Any) -> Iterator[tuple[TopicPartition, int, int | None]]:
    """Partition, error code and offset, None where no record is that late."""
    for topic in answer.topics:
        for each in topic.partitions:
            offset = None if each.offset == _NOT_FOUND else each.offset
            yield TopicPartition(topic.name, each.partition_index), each.error_code, offset
