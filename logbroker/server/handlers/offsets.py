"""ListOffsets and OffsetForLeaderEpoch: where a time or a leader epoch lies in a log."""

from collections import Counter
from typing import Final

from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from logbroker.errors import InvalidRequest, RequestRefused, UnsupportedVersion
from logbroker.server.leader_epoch import check_leader_epoch
from logbroker.server.partition import Partitions
from logbroker.storage.partition_log import PartitionLog, TimestampOffset
from logbroker.wire.error_codes import code_of

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4

FIRST_VERSION_OF: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8}
"""The special timestamps that came after version 1 (KIP-734, KIP-405)."""

NOTHING: Final = TimestampOffset(timestamp_ms=-1, offset=-1, leader_epoch=-1)

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse
_EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


class OffsetHandlers:
    """Look-ups that may read segments: the dispatcher runs them beside the loop's thread."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """The offset of each partition's time, or of a special timestamp."""
        asked = Counter(
            (topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )
        return ListOffsetsResponse(
            throttle_time_ms=0,
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=[
                        self._find(
                            topic.name,
                            wanted,
                            request.version or 0,
                            asked[topic.name, wanted.partition_index],
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Where each leader epoch ends (KIP-101, KIP-320)."""
        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=[
                _EpochTopic(
                    topic=topic.topic,
                    partitions=[
                        self._epoch_end(topic.topic, wanted) for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _find(
        self,
        topic: str,
        wanted: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
        version: int,
        times_asked: int,
    ) -> _Partition:
        found, code = NOTHING, 0
        try:
            if times_asked > 1:
                raise InvalidRequest(f"{topic}-{wanted.partition_index} is asked for twice")
            log = self._partitions.get(topic, wanted.partition_index).log
            check_leader_epoch(log, wanted.current_leader_epoch)
            found = _look_up(log, wanted.timestamp, version)
        except RequestRefused as refusal:
            code = code_of(refusal)
        return _Partition(
            partition_index=wanted.partition_index,
            error_code=code,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    def _epoch_end(
        self,
        topic: str,
        wanted: OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition,
    ) -> _EpochTopic.EpochEndOffset:
        epoch, end_offset, code = -1, -1, 0
        try:
            log = self._partitions.get(topic, wanted.partition).log
            check_leader_epoch(log, wanted.current_leader_epoch)
            epoch, end_offset = log.end_offset_for_epoch(wanted.leader_epoch)
        except RequestRefused as refusal:
            code = code_of(refusal)
        return _EpochTopic.EpochEndOffset(
            error_code=code,
            partition=wanted.partition,
            leader_epoch=epoch,
            end_offset=end_offset,
        )


def _look_up(log: PartitionLog, timestamp_ms: int, version: int) -> TimestampOffset:
    if timestamp_ms >= 0:
        return log.offset_for_time(timestamp_ms) or NOTHING
    if version < FIRST_VERSION_OF.get(timestamp_ms, 0):
        raise UnsupportedVersion(f"timestamp {timestamp_ms} is not in ListOffsets v{version}")
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, log.high_watermark, log.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.log_start_offset, log.leader_epoch)
    if timestamp_ms == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp() or NOTHING
    raise UnsupportedVersion(f"timestamp {timestamp_ms} has no meaning")
