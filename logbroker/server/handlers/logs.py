"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeLogDirs."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.admin.topics import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from logbroker.errors import InvalidRequest, RequestRefused, UnsupportedVersion
from logbroker.server.connection import Connection
from logbroker.server.loop import SocketLoop
from logbroker.server.partition import Partition, Partitions
from logbroker.storage.partition_log import PartitionLog, TimestampOffset
from logbroker.wire.error_codes import code_of

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4

FIRST_VERSION_OF: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8}
"""The special timestamps that later versions added (KIP-734, KIP-405)."""

DELETE_TO_HIGH_WATERMARK: Final = -1
"""The offset of a DeleteRecords request that deletes all records below the high watermark."""

DELETIONS_PER_TURN: Final = 200
"""Partitions of a DeleteRecords request, which take some microseconds each."""

NOT_FOUND: Final = TimestampOffset(timestamp_ms=-1, offset=-1, leader_epoch=-1)

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse
_EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_DeletedTopic = DeleteRecordsResponse.DeleteRecordsTopicResult
_LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
_LogDirTopic = _LogDir.DescribeLogDirsTopic


class LogHandlers:
    """Handles requests about the logs of this broker; all but `delete_records` read the disk."""

    def __init__(self, data_dir: Path, partitions: Partitions, loop: SocketLoop) -> None:
        self._data_dir = data_dir
        self._partitions = partitions
        self._loop = loop

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Return the offset of a timestamp or of a special timestamp, for each partition."""
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
        """Return the end offset of each leader epoch (KIP-101, KIP-320)."""
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

    def delete_records(
        self,
        request: DeleteRecordsRequest,
        _connection: Connection,
        respond: Callable[[DeleteRecordsResponse], None],
    ) -> None:
        """Move the log start offset of each partition forward (KIP-107), of some per turn."""
        topics = [_DeletedTopic(name=topic.name, partitions=[]) for topic in request.topics]

        def delete() -> Iterator[None]:
            number_in_turn = 0
            for topic, deleted in zip(request.topics, topics, strict=True):
                for wanted in topic.partitions:
                    if number_in_turn == DELETIONS_PER_TURN:
                        number_in_turn = 0
                        yield
                    number_in_turn += 1
                    place = topic.name, wanted.partition_index
                    deleted.partitions.append(self._delete_before(*place, wanted.offset))

        self._loop.run_parts(
            delete(), lambda: respond(DeleteRecordsResponse(throttle_time_ms=0, topics=topics))
        )

    def describe_log_dirs(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Return the sizes of the requested logs, or of all logs (KIP-113)."""
        by_topic: dict[str, list[Partition]] = {}
        for partition in self._requested(request):
            by_topic.setdefault(partition.topic.name, []).append(partition)
        usage = shutil.disk_usage(self._data_dir)
        result = _LogDir(
            error_code=0,
            log_dir=str(self._data_dir.absolute()),
            topics=[_describe_topic(name, each) for name, each in by_topic.items()],
            total_bytes=usage.total,
            usable_bytes=usage.free,
        )
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])

    def _find(
        self,
        topic: str,
        wanted: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
        version: int,
        times_asked: int,
    ) -> _Partition:
        found, code = NOT_FOUND, 0
        try:
            if times_asked > 1:
                raise InvalidRequest(f"{topic}-{wanted.partition_index} is in the request twice")
            partition = self._partitions.get(topic, wanted.partition_index)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            found = _find_offset(partition.log, wanted.timestamp, version)
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
            partition = self._partitions.get(topic, wanted.partition)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
        except RequestRefused as refusal:
            code = code_of(refusal)
        return _EpochTopic.EpochEndOffset(
            error_code=code,
            partition=wanted.partition,
            leader_epoch=epoch,
            end_offset=end_offset,
        )

    def _delete_before(
        self, name: str, number: int, offset: int
    ) -> _DeletedTopic.DeleteRecordsPartitionResult:
        low_watermark, code = -1, 0
        try:
            log = self._partitions.get(name, number).log
            end = log.high_watermark if offset == DELETE_TO_HIGH_WATERMARK else offset
            low_watermark = log.delete_records_before(end)
        except RequestRefused as refusal:
            code = code_of(refusal)
        return _DeletedTopic.DeleteRecordsPartitionResult(
            partition_index=number, low_watermark=low_watermark, error_code=code
        )

    def _requested(self, request: DescribeLogDirsRequest) -> list[Partition]:
        served = self._partitions.all()
        if request.topics is None:
            return served
        wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
        return [
            partition
            for partition in served
            if (partition.topic.name, partition.log.partition) in wanted
        ]


def _describe_topic(name: str, partitions: list[Partition]) -> _LogDirTopic:
    return _LogDirTopic(
        name=name,
        partitions=[
            _LogDirTopic.DescribeLogDirsPartition(
                partition_index=partition.log.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for partition in partitions
        ],
    )


def _find_offset(log: PartitionLog, timestamp_ms: int, version: int) -> TimestampOffset:
    if timestamp_ms >= 0:
        return log.offset_for_time(timestamp_ms) or NOT_FOUND
    if version < FIRST_VERSION_OF.get(timestamp_ms, 0):
        raise UnsupportedVersion(
            f"ListOffsets v{version} does not support timestamp {timestamp_ms}"
        )
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, log.high_watermark, log.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.log_start_offset, log.leader_epoch)
    if timestamp_ms == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp() or NOT_FOUND
    raise UnsupportedVersion(f"unknown special timestamp {timestamp_ms}")
