"""Reads the partitions of Fetch requests, all at once or some at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from logbroker.errors import RequestRefused, StorageFailed
from logbroker.records.file_span import LogSpan
from logbroker.security.acl import AclOperation
from logbroker.server.authorization.access import Access, Client
from logbroker.server.connection import Connection
from logbroker.server.metrics.counters import TopicTraffic
from logbroker.server.partition import Partition, Partitions
from logbroker.wire.error_codes import code_of
from logbroker.wire.fetch import FetchOutcome, FetchPartition, FetchRequest

NO_OFFSET: Final = -1
NO_TOPIC_ID: Final = UUID(int=0)

RESPONSE_BYTES_MAX: Final = 55 * 2**20
"""The size limit of a response: the default of Kafka's broker setting `fetch.max.bytes`."""


@dataclass(slots=True)
class ReadResult:
    """What was read of the partitions of a request until now."""

    bytes_left: int
    outcomes: list[FetchOutcome]
    partitions: list[Partition]
    reads: list[tuple[TopicTraffic, LogSpan, int]]
    """Traffic, span and fetch offset of each partition with records."""
    size: int = 0
    has_error: bool = False


class FetchReader:
    """Reads up to the high watermark what a client may read."""

    def __init__(self, access: Access, partitions: Partitions) -> None:
        self._access = access
        self._partitions = partitions

    def start(self, request: FetchRequest) -> ReadResult:
        """Return the result of a read that has not begun."""
        return ReadResult(min(request.max_bytes, RESPONSE_BYTES_MAX), [], [], [])

    def read(self, connection: Connection, request: FetchRequest) -> ReadResult:
        """Read all partitions of a request."""
        result = self.start(request)
        self.read_more(connection, request.partitions, result)
        return result

    def read_more(
        self, connection: Connection, partitions: Sequence[FetchPartition], result: ReadResult
    ) -> None:
        """Read the next partitions of a request, and add them to `result`."""
        is_restricted = self._access.is_restricted
        for wanted in partitions:
            try:
                topic = self._topic_of(wanted)
                if is_restricted and topic not in connection.readable_topics:
                    self._check_readable(connection, topic)
                partition = self._partitions.get(topic, wanted.partition)
                partition.check_leader_epoch(wanted.current_leader_epoch)
                bytes_max = min(wanted.bytes_max, result.bytes_left)
                span = self._read(partition, wanted, bytes_max, is_first=result.size == 0)
            except RequestRefused as refusal:
                result.has_error = True
                result.outcomes.append(
                    FetchOutcome(wanted, code_of(refusal), NO_OFFSET, NO_OFFSET, None)
                )
                continue
            if span is not None:
                result.bytes_left = max(0, result.bytes_left - span.length)
                result.size += span.length
                result.reads.append((partition.traffic, span, wanted.fetch_offset))
            result.partitions.append(partition)
            log = partition.log
            result.outcomes.append(
                FetchOutcome(wanted, 0, log.high_watermark, log.log_start_offset, span)
            )

    def _topic_of(self, wanted: FetchPartition) -> str:
        if wanted.topic is not None:
            return wanted.topic
        return self._partitions.view.topic_by_id(wanted.topic_id or NO_TOPIC_ID).name

    def _check_readable(self, connection: Connection, topic: str) -> None:
        client = Client(connection.principal, connection.client_host)
        self._access.check_topic(client, AclOperation.READ, topic)
        if topic in self._partitions.view.topics:
            connection.readable_topics.add(topic)

    def _read(
        self, partition: Partition, wanted: FetchPartition, bytes_max: int, *, is_first: bool
    ) -> LogSpan | None:
        try:
            return partition.log.read(wanted.fetch_offset, bytes_max, whole_batch=is_first)
        except OSError as error:
            raise StorageFailed(f"{partition}: read failed: {error}") from error
