"""DeleteRecords: moves log start offsets forward (KIP-107)."""

from typing import Final

from kafka.protocol.admin.topics import DeleteRecordsRequest, DeleteRecordsResponse

from logbroker.errors import RequestRefused
from logbroker.server.partition import Partitions
from logbroker.wire.error_codes import code_of

HIGH_WATERMARK: Final = -1
"""An offset that means: everything that consumers can see."""

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult


class RecordHandlers:
    """Answers for the partitions that this broker leads."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """Let go of the records before each offset."""
        return DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=[
                        self._delete_before(topic.name, wanted.partition_index, wanted.offset)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _delete_before(
        self, name: str, number: int, offset: int
    ) -> _Topic.DeleteRecordsPartitionResult:
        low_watermark, code = -1, 0
        try:
            log = self._partitions.get(name, number).log
            end = log.high_watermark if offset == HIGH_WATERMARK else offset
            low_watermark = log.delete_records_before(end)
        except RequestRefused as refusal:
            code = code_of(refusal)
        return _Topic.DeleteRecordsPartitionResult(
            partition_index=number, low_watermark=low_watermark, error_code=code
        )
