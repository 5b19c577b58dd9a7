"""DescribeLogDirs: how much disk each log takes (KIP-113)."""

import shutil
from pathlib import Path

from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse

from logbroker.server.partition import Partition, Partitions

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic


class LogDirHandlers:
    """Answers about the one data directory of this broker."""

    def __init__(self, data_dir: Path, partitions: Partitions) -> None:
        self._data_dir = data_dir
        self._partitions = partitions

    def describe(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Sizes of the logs asked for; of all when none is named."""
        by_topic: dict[str, list[Partition]] = {}
        for partition in self._wanted(request):
            by_topic.setdefault(partition.topic.name, []).append(partition)
        usage = shutil.disk_usage(self._data_dir)
        result = _Result(
            error_code=0,
            log_dir=str(self._data_dir.absolute()),
            topics=[_topic(name, partitions) for name, partitions in by_topic.items()],
            total_bytes=usage.total,
            usable_bytes=usage.free,
        )
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])

    def _wanted(self, request: DescribeLogDirsRequest) -> list[Partition]:
        served = list(self._partitions)
        if request.topics is None:
            return served
        wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
        return [
            partition
            for partition in served
            if (partition.topic.name, partition.log.partition) in wanted
        ]


def _topic(name: str, partitions: list[Partition]) -> _Topic:
    return _Topic(
        name=name,
        partitions=[
            _Topic.DescribeLogDirsPartition(
                partition_index=partition.log.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for partition in partitions
        ],
    )
