"""Reads ranges of several partitions at a time, by a stock client, for one page."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from app.config import Settings
from app.log.browser.partition_scan import RangeRequest, RangeResult, RawRecord
from app.log.client_errors import CLIENT_LOG
from app.log.inspection.deadline import Deadline
from app.log.reader_clients import reader_configuration
from app.log.unreadable import log_unreadable
from logbroker.client.batch_skipper import DATA_ERRORS, BatchSkipper, position_after
from logbroker.client.librdkafka import readable_headers
from logbroker.client.skipped_batches import SkippedBatch

_WAIT_S: Final = 0.1
_AT_ONCE: Final = 500

_SILENCE_S: Final = 1.0
"""After how long without records the log is inspected: the client reports nothing for records that
do not parse."""


class RecordReader:
    """A consumer without a group, for one thread; a context manager.

    Records of open and aborted transactions are skipped. `problems` has the errors of partitions
    that cannot be read, `damaged` says which offsets were skipped because their batches cannot be
    read, by partition.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        properties = {"client.id": "rewind-browser", **settings.kafka_properties}
        configuration = reader_configuration(settings.bootstrap_servers, properties)
        # If the start was deleted meanwhile, reading continues at the log start offset.
        configuration["auto.offset.reset"] = "earliest"
        # New records are not waited for, and the next read waits for the answer to the last fetch.
        configuration["fetch.wait.max.ms"] = 5
        self._consumer = Consumer(configuration, logger=CLIENT_LOG)
        self._topic = topic
        self._skipper = BatchSkipper(
            {**settings.kafka_properties, "bootstrap.servers": settings.bootstrap_servers},
            self._record_damaged,
        )
        self.bytes_read = 0
        self.problems: dict[int, str] = {}
        self.damaged: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def reset(self) -> None:
        """Fetch nothing ahead, and forget problems, before it is used for another page."""
        self._consumer.unassign()
        self.problems, self.damaged, self.bytes_read = {}, {}, 0

    def read(
        self, requests: Mapping[int, RangeRequest], deadline: Deadline, bytes_max: int
    ) -> dict[int, RangeResult]:
        """Read the ranges; they are incomplete after `bytes_max` bytes or the deadline."""
        places = [TopicPartition(self._topic, each, at.start) for each, at in requests.items()]
        self._consumer.assign(places)
        reads = {each: _RangeRead(each, request) for each, request in requests.items()}
        most = self.bytes_read + bytes_max
        heard_s = time.monotonic()
        while not all(each.is_done for each in reads.values()):
            if deadline.is_over or self.bytes_read >= most:
                break
            messages = self._messages(deadline)
            failed: dict[int, KafkaError | None] = {}
            for message in messages:
                self._add(message, reads, failed)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s >= _SILENCE_S:
                heard_s = time.monotonic()
                failed = {each.partition: None for each in reads.values() if not each.is_done}
            for partition, error in failed.items():
                self._skip_unreadable(reads[partition], error)
        return {partition: each.result for partition, each in reads.items()}

    def _messages(self, deadline: Deadline) -> Sequence[Message]:
        # `consume` waits until it has all it may take. So wait for one, then take what is there.
        first = self._consumer.poll(min(_WAIT_S, deadline.left_s))
        return () if first is None else (first, *self._consumer.consume(_AT_ONCE, 0))

    def _add(
        self,
        message: Message,
        reads: "Mapping[int, _RangeRead]",
        failed: dict[int, KafkaError | None],
    ) -> None:
        partition, error = message.partition(), message.error()
        read = None if partition is None else reads.get(partition)
        if read is None or read.is_done or read.partition in failed:
            return
        if error is None:
            record = _record(message, read.partition)
            self.bytes_read += _size(record)
            read.add(record)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            read.end_at(message.offset() or 0)
        elif error.code() in DATA_ERRORS:
            failed[read.partition] = error
            return
        else:
            self.problems[read.partition] = error.str()
            read.is_done = True
        if read.is_done:
            # After a pause and resume, the client sometimes waits for a second.
            self._consumer.incremental_unassign([TopicPartition(self._topic, read.partition)])

    def _skip_unreadable(self, read: "_RangeRead", error: KafkaError | None) -> None:
        """Continue behind what cannot be read; after an error that stays, end the range."""
        found = self._skipper.skip_unreadable(
            self._topic, read.partition, read.position, error, until=read.end
        )
        position = position_after(found, read.position)
        if found is None and error is not None:
            self.problems[read.partition] = error.str()
            read.is_done = True
        if position > read.position:
            read.skip_to(position)
        elif error is None:
            return
        place = TopicPartition(self._topic, read.partition, position)
        self._consumer.incremental_unassign([place])
        if not read.is_done:
            self._consumer.incremental_assign([place])

    def _record_damaged(self, batch: SkippedBatch) -> None:
        log_unreadable(batch)
        words = f"offsets {batch.start} to {batch.end - 1} cannot be read: {batch.reason}"
        known = self.damaged.get(batch.partition)
        if known is None or words not in known:
            self.damaged[batch.partition] = words if known is None else f"{known}; {words}"


class _RangeRead:
    """The progress of one range."""

    def __init__(self, partition: int, request: RangeRequest) -> None:
        self.partition = partition
        self.is_done = False
        self._request = request
        self._records: list[RawRecord] = []
        self._position = request.start

    @property
    def position(self) -> int:
        return self._position

    @property
    def end(self) -> int:
        return self._request.end

    @property
    def result(self) -> RangeResult:
        return RangeResult(self._records, self._position)

    def skip_to(self, position: int) -> None:
        """Pass what cannot be read."""
        self._position = min(position, self._request.end)
        self.is_done = self._position >= self._request.end

    def add(self, record: RawRecord) -> None:
        if record.offset >= self._request.end:
            self.complete()
            return
        if record.offset < self._position:
            return  # the log was truncated below the start
        self._records.append(record)
        self._position = record.offset + 1
        is_full = len(self._records) >= self._request.records_max
        self.is_done = is_full or self._position >= self._request.end

    def complete(self) -> None:
        """Record that the range has no further records."""
        self.end_at(self._request.end)

    def end_at(self, log_end: int) -> None:
        """End the range, at the end of the log if that is lower.

        A new leader may need a while to show all records.
        """
        self._position = min(max(self._position, log_end), self._request.end)
        self.is_done = True


def _record(message: Message, partition: int) -> RawRecord:
    kind, timestamp_ms = message.timestamp()
    offset = message.offset()
    assert offset is not None
    key: Any = message.key()
    return RawRecord(
        partition=partition,
        offset=offset,
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        is_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
        key=key,
        value=message.value(),
        headers=readable_headers(message),
    )


def _size(record: RawRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers or ():
        size += len(name) + len(value or b"")
    return size
