"""Reads spans of several partitions at a time, by a stock client, for one page."""

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
from app.log.browser.walks import Probe, RawRecord, Stretch
from app.log.complaints import CLIENT_LOG
from app.log.inspection.deadline import Deadline
from app.log.reader import reader_configuration
from logbroker.client.librdkafka import readable_headers

_WAIT_S: Final = 0.1
_AT_ONCE: Final = 500

_DAMAGED: Final = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)  # noqa: SLF001


class RecordReader:
    """A client without a group, for one thread; a context manager.

    What was not committed by its transaction is left out. `problems` tells of partitions that are
    not to be read, `damaged` of batches that were left out, each by partition.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        properties = {"client.id": "rewind-browser", **settings.kafka_properties}
        configuration = reader_configuration(settings.bootstrap_servers, properties)
        # What lies before a log's beginning was deleted meanwhile: one reads on where it begins.
        configuration["auto.offset.reset"] = "earliest"
        # Nobody waits for records to come, and a next read waits for the answer to the last.
        configuration["fetch.wait.max.ms"] = 5
        self._consumer = Consumer(configuration, logger=CLIENT_LOG)
        self._topic = topic
        self.bytes_read = 0
        self.problems: dict[int, str] = {}
        self.damaged: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(
        self, probes: Mapping[int, Probe], deadline: Deadline, bytes_max: int
    ) -> dict[int, Stretch]:
        """What each partition has; less of it once `bytes_max` were read or the time is over."""
        places = [TopicPartition(self._topic, each, at.start) for each, at in probes.items()]
        self._consumer.assign(places)
        spans = {partition: _Span(partition, probe) for partition, probe in probes.items()}
        most = self.bytes_read + bytes_max
        while not all(span.is_done for span in spans.values()):
            if deadline.is_over or self.bytes_read >= most:
                break
            for message in self._messages(deadline):
                self._take(message, spans)
        return {partition: span.stretch for partition, span in spans.items()}

    def _messages(self, deadline: Deadline) -> Sequence[Message]:
        # `consume` waits until it has all it may take. So wait for one, then take what is there.
        first = self._consumer.poll(min(_WAIT_S, deadline.left_s))
        return () if first is None else (first, *self._consumer.consume(_AT_ONCE, 0))

    def _take(self, message: Message, spans: "Mapping[int, _Span]") -> None:
        partition, error = message.partition(), message.error()
        span = None if partition is None else spans.get(partition)
        if span is None or span.is_done:
            return
        if error is None:
            record = _record(message, span.partition)
            self.bytes_read += _size(record)
            span.take(record)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            span.end()
        elif error.code() in _DAMAGED:
            self.damaged[span.partition] = error.str()
        else:
            self.problems[span.partition] = error.str()
            span.give_up()
        if span.is_done:
            # Paused and resumed, the client would now and then wait for a second.
            self._consumer.incremental_unassign([TopicPartition(self._topic, span.partition)])


class _Span:
    """How far the read of one span is."""

    def __init__(self, partition: int, probe: Probe) -> None:
        self.partition = partition
        self.is_done = False
        self._probe = probe
        self._records: list[RawRecord] = []
        self._position = probe.start

    @property
    def stretch(self) -> Stretch:
        return Stretch(self._records, self._position)

    def take(self, record: RawRecord) -> None:
        if record.offset >= self._probe.end:
            self.end()
            return
        if record.offset < self._position:
            return  # of a log that was cut off below where it was to be read
        self._records.append(record)
        self._position = record.offset + 1
        is_full = len(self._records) >= self._probe.records_max
        self.is_done = is_full or self._position >= self._probe.end

    def end(self) -> None:
        """Nothing more of the span is to come: it is read."""
        self._position = self._probe.end
        self.is_done = True

    def give_up(self) -> None:
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
    headers = sum(len(name) + len(value or b"") for name, value in record.headers or ())
    return len(record.key or b"") + len(record.value or b"") + headers
