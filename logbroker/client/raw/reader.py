"""Reads the raw batches of one partition; the next request is on its way while one is decoded."""

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
"""So much at a time that the way to the broker and back costs next to nothing."""

_BYTES_LEAST: Final = 64 * 2**10
_GUESSED_BYTES: Final = 1024
"""Of one record, until some were seen: a short range must not bring megabytes behind its end."""

_SLACK: Final = 1.25

_FRAME_BYTES: Final = 1024
"""What an answer has besides records; aborted transactions of a few dozen producers among it."""


class RawReader:
    """Iterates over the chunks of the offsets `[start, end)`; a context manager.

    Nothing is read behind `end` but what the last batch holds, and a whole batch comes even if it
    is larger than `bytes_max`. Where `end` lies behind the log's end, the reader waits for records
    as long as the cluster's `timeout_s`. `topic_id`, where it is given, is that of the topic whose
    offsets these are.

    Iterating raises, besides what the cluster's methods do:
        OffsetGone: the next offset is not in the log, or not any more.
        TopicReplaced: the topic is not the one that it was.
        FetchFailed: the broker refuses, or what it sends is not in a format that is read.
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
        self._place = TopicPartition(*partition)
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
        self._quiet_until_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RawChunk:
        while self._position < self._end:
            patience = self._cluster.patience(f"reading {self._place} at offset {self._position}")
            chunk = retry(patience, self._attempt)
            self._position = chunk.next_offset
            self._ask_ahead()
            if chunk.records:
                return chunk
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Leave the connection to others; an answer that is still owed is given up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._cluster.connections.give_back(connection)

    def _attempt(self) -> RawChunk:
        try:
            answer = self._answer()
        except ConnectionFailed:
            self._drop()
            raise
        self._quiet_until_s = time.monotonic() + self._cluster.pause_s(answer.throttle_ms)
        return self._chunk(self._fetched(answer))

    def _answer(self) -> FetchResponse:
        if self._connection is None or self._connection.is_idle:
            self._ask()
        assert self._connection is not None
        return self._connection.receive_fetch(self._version)

    def _ask_ahead(self) -> None:
        """Send the next request while the caller has something to do, if the broker wants that."""
        if self._position >= self._end or time.monotonic() < self._quiet_until_s:
            return
        try:
            self._ask()
        except AttemptFailed:
            # Said again, and answered for, when the next chunk is asked for.
            self._drop()

    def _ask(self) -> None:
        time.sleep(max(0.0, self._quiet_until_s - time.monotonic()))
        plan, leader = self._cluster.leader(self._place)
        self._check_topic(plan.topic_id)
        if self._connection is None:
            self._connection = self._cluster.connections.take(leader.address)
        call = FetchParameters(
            topic=self._place.topic,
            topic_id=plan.topic_id,
            partition=self._place.partition,
            leader_epoch=leader.epoch,
            offset=self._position,
            bytes_max=self._bytes_wanted(),
            max_wait_ms=self._cluster.fetch_wait_ms,
            isolation_level=self._isolation_level,
        )
        named = self._highest_version if plan.topic_id else FIRST_WITH_TOPIC_ID - 1
        self._version = self._connection.send_fetch(call, min(named, self._highest_version))

    def _bytes_wanted(self) -> int:
        """As much as the rest of the range is expected to be, but a good deal, or `bytes_max`."""
        expected = (self._end - self._position) * self._bytes_per_offset * _SLACK
        return min(self._bytes_max, _BYTES_LEAST + int(expected))

    def _check_topic(self, topic_id: UUID | None) -> None:
        """Keep the id that is seen first, where the caller named none."""
        self._topic_id = self._topic_id or topic_id
        if topic_id is not None and topic_id != self._topic_id:
            raise TopicReplaced(
                f"topic {self._place.topic!r} was made anew: its id is {topic_id},"
                f" and the offsets are of {self._topic_id}"
            )

    def _fetched(self, answer: FetchResponse) -> FetchedPartition:
        """What is told of the one partition; errors of it, and of the answer, are raised."""
        found = [each for each in answer.partitions if each.partition == self._place.partition]
        code = answer.error_code or (found[0].error_code if found else NONE)
        if code == OFFSET_OUT_OF_RANGE:
            self._raise_offset_gone()
        if code != NONE:
            # Whatever it is, somebody else may lead now.
            self.close()
            self._cluster.forget(self._place.topic)
            raise error_for_code(f"the records of {self._place}", code)
        if not found and answer.throttle_ms:
            raise AttemptFailed("the broker is asked too much, and throttles")
        if not found:
            self._drop()
            raise ConnectionFailed(f"an answer without {self._place}, which was asked for")
        return found[0]

    def _raise_offset_gone(self) -> None:
        """Tell with the log's range; where the offset lies in it, only this leader lacks it yet."""
        log_start, log_end = (
            self._cluster.offsets({self._place: at}, read_committed=False)[self._place]
            for at in (EARLIEST, LATEST)
        )
        assert log_start is not None, "a log has a beginning"
        assert log_end is not None, "a log has an end"
        if log_start <= self._position <= log_end:
            self.close()
            self._cluster.forget(self._place.topic)
            raise AttemptFailed(f"the leader of {self._place} has not caught up")
        raise OffsetGone(*self._place, self._position, log_start, log_end)

    def _chunk(self, fetched: FetchedPartition) -> RawChunk:
        cut = cut_to_range(fetched.records, self._position, self._end)
        if cut.next_offset == self._position:
            self._note_nothing(fetched)
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

    def _note_nothing(self, fetched: FetchedPartition) -> None:
        if fetched.preferred_replica != NO_PREFERRED_REPLICA:
            # Versions that name no rack are answered by the leader itself.
            self._highest_version = FIRST_WITH_RACK - 1
        end = fetched.high_watermark
        if self._isolation_level == READ_COMMITTED:
            end = fetched.last_stable_offset
        raise AttemptFailed(f"nothing came, and what may be read ends at offset {end}")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._cluster.forget(self._place.topic)
        if connection is not None:
            self._cluster.connections.drop(connection)
