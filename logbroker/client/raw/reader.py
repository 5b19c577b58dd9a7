"""Reads the raw batches of one partition; sends the next request while one is decoded."""

import time
from typing import Final, Self
from uuid import UUID

from logbroker.client.errors import OffsetGone, TopicReplaced
from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.connection import BrokerConnection
from logbroker.client.raw.parsing.chunk import RawChunk, cut_to_range
from logbroker.client.raw.parsing.errors import (
    OFFSET_OUT_OF_RANGE,
    AttemptFailed,
    ConnectionFailed,
    error_for_code,
)
from logbroker.client.raw.parsing.metadata import EARLIEST, LATEST, TopicPartition
from logbroker.client.raw.retries import retry
from logbroker.wire.error_codes import NONE
from logbroker.wire.fetch import FIRST_WITH_RACK, FIRST_WITH_TOPIC_ID, NO_PREFERRED_REPLICA
from logbroker.wire.fetch_client import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SENT_VERSIONS,
    FetchedPartition,
    FetchParameters,
    FetchResponse,
)

BYTES_MAX: Final = 8 * 2**20
"""Large enough to make the cost of a round trip negligible."""

_BYTES_LEAST: Final = 64 * 2**10
_GUESSED_BYTES: Final = 1024
"""The assumed size of a record before any was read, so that short ranges fetch little."""

_SLACK: Final = 1.25

_FRAME_BYTES: Final = 1024
"""The size of a response without records, including aborted transactions."""


class RawReader:
    """Iterates over the chunks of the offsets `[start, end)`; a context manager.

    A last batch that reaches beyond `end` is returned whole, and a batch larger than `bytes_max` as
    well. If `end` is above the log end offset, the reader waits for records up to the cluster's
    `timeout_s`. `topic_id` is the id of the topic that the offsets belong to, if known.

    Iterating raises, in addition to the errors of the cluster's methods:
        OffsetGone: the next offset is not in the log.
        TopicReplaced: the topic was deleted and created again.
        FetchFailed: the broker returns an error, or data in an unsupported format.
    """

    def __init__(
        self,
        cluster: RawCluster,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        bytes_max: int = BYTES_MAX,
        read_committed: bool | None = None,
        topic_id: UUID | None = None,
    ) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(*partition)
        self._position = start
        self._end = end
        self._bytes_max = min(bytes_max, cluster.settings.answer_bytes_max - _FRAME_BYTES)
        is_committed = cluster.is_committed(read_committed)
        self._isolation_level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        self._topic_id = topic_id
        self._connection: BrokerConnection | None = None
        self._version = 0
        self._highest_version = SENT_VERSIONS[1]
        self._bytes_per_offset: float = _GUESSED_BYTES
        self._throttled_until_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RawChunk:
        while self._position < self._end:
            timer = self._cluster.start_timer(
                f"reading {self._partition} at offset {self._position}"
            )
            chunk = retry(timer, self._read_chunk)
            self._position = chunk.next_offset
            self._send_ahead()
            if chunk.records:
                return chunk
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Release the connection; drops an outstanding response."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._cluster.connections.release(connection)

    def _read_chunk(self) -> RawChunk:
        try:
            answer = self._receive_response()
        except ConnectionFailed:
            self._discard_connection()
            raise
        self._throttled_until_s = time.monotonic() + self._cluster.throttle_s(answer.throttle_ms)
        return self._chunk(self._partition_response(answer))

    def _receive_response(self) -> FetchResponse:
        if self._connection is None or self._connection.is_idle:
            self._send_fetch()
        assert self._connection is not None
        return self._connection.receive_fetch(self._version)

    def _send_ahead(self) -> None:
        """Send the next request while the caller decodes, unless the broker throttles."""
        if self._position >= self._end or time.monotonic() < self._throttled_until_s:
            return
        try:
            self._send_fetch()
        except AttemptFailed:
            # The next request for a chunk repeats and handles the failure.
            self._discard_connection()

    def _send_fetch(self) -> None:
        time.sleep(max(0.0, self._throttled_until_s - time.monotonic()))
        plan, leader = self._cluster.leader(self._partition)
        self._check_topic(plan.topic_id)
        if self._connection is None:
            self._connection = self._cluster.connections.acquire(leader.address)
        call = FetchParameters(
            topic=self._partition.topic,
            topic_id=plan.topic_id,
            partition=self._partition.partition,
            leader_epoch=leader.epoch,
            offset=self._position,
            bytes_max=self._bytes_wanted(),
            max_wait_ms=self._cluster.fetch_wait_ms,
            isolation_level=self._isolation_level,
        )
        named = self._highest_version if plan.topic_id else FIRST_WITH_TOPIC_ID - 1
        self._version = self._connection.send_fetch(call, highest=min(named, self._highest_version))

    def _bytes_wanted(self) -> int:
        """Return the expected size of the rest of the range, with a margin, up to `bytes_max`."""
        expected = (self._end - self._position) * self._bytes_per_offset * _SLACK
        return min(self._bytes_max, _BYTES_LEAST + int(expected))

    def _check_topic(self, topic_id: UUID | None) -> None:
        """Compare topic ids; keep the first one if the caller gave none."""
        self._topic_id = self._topic_id or topic_id
        if topic_id is not None and topic_id != self._topic_id:
            raise TopicReplaced(
                f"topic {self._partition.topic!r} was created again: its id is {topic_id},"
                f" but the offsets belong to {self._topic_id}"
            )

    def _partition_response(self, answer: FetchResponse) -> FetchedPartition:
        """Return the response of the partition, and raise its errors."""
        found = [each for each in answer.partitions if each.partition == self._partition.partition]
        code = answer.error_code or (found[0].error_code if found else NONE)
        if code == OFFSET_OUT_OF_RANGE:
            self._raise_offset_gone()
        if code != NONE:
            # Another broker may be the leader now.
            self.close()
            self._cluster.invalidate(self._partition.topic)
            raise error_for_code(f"the records of {self._partition}", code)
        if not found and answer.throttle_ms:
            raise AttemptFailed("the broker throttles this client")
        if not found:
            self._discard_connection()
            raise ConnectionFailed(f"{self._partition} is missing in the response")
        return found[0]

    def _raise_offset_gone(self) -> None:
        """Raise OffsetGone; retry instead if only this leader lacks the offset."""
        log_start, log_end = (
            self._cluster.offsets({self._partition: at}, read_committed=False)[self._partition]
            for at in (EARLIEST, LATEST)
        )
        assert log_start is not None, "every log has a log start offset"
        assert log_end is not None, "every log has a log end offset"
        if log_start <= self._position <= log_end:
            self.close()
            self._cluster.invalidate(self._partition.topic)
            raise AttemptFailed(f"the leader of {self._partition} is behind")
        raise OffsetGone(*self._partition, self._position, log_start, log_end)

    def _chunk(self, fetched: FetchedPartition) -> RawChunk:
        cut = cut_to_range(fetched.records, self._position, self._end)
        if cut.next_offset == self._position:
            self._handle_empty_response(fetched)
        size = cut.end_byte - cut.first_byte
        self._bytes_per_offset = size / (cut.next_offset - self._position)
        return RawChunk(
            records=fetched.records[cut.first_byte : cut.end_byte].toreadonly(),
            first_wanted=self._position,
            end=self._end,
            next_offset=cut.next_offset,
            log_start_offset=fetched.log_start_offset,
            last_stable_offset=fetched.last_stable_offset,
            high_watermark=fetched.high_watermark,
            aborted=fetched.aborted,
        )

    def _handle_empty_response(self, fetched: FetchedPartition) -> None:
        if fetched.preferred_replica != NO_PREFERRED_REPLICA:
            # Versions without a rack are answered by the leader itself.
            self._highest_version = FIRST_WITH_RACK - 1
        end = fetched.high_watermark
        if self._isolation_level == READ_COMMITTED:
            end = fetched.last_stable_offset
        raise AttemptFailed(f"no records; the readable log ends at offset {end}")

    def _discard_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._cluster.invalidate(self._partition.topic)
        if connection is not None:
            self._cluster.connections.discard(connection)
