"""Writes records to the destination, and records the outcome of each."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logbroker.client.librdkafka import readable_headers
from logbroker.mirror.clients import CLIENT_LOG
from logbroker.mirror.domain.partitions import PartitionProgress
from logbroker.mirror.domain.provenance import Provenance, SkipReason
from logbroker.mirror.metrics import MirrorCounts

_log: Final = logging.getLogger(__name__)

PRODUCER_KNOWN_S: Final = 60.0
"""How long a broker certainly remembers a producer; the default is a day."""

_PURGE_S: Final = 1.0
_REFUSALS_S: Final = 1.0

_UNSENT: Final = frozenset(("_FATAL", "_GAPLESS_GUARANTEE", "_PURGE_QUEUE", "_PURGE_INFLIGHT"))
"""Errors of records that the destination did not refuse: another one was refused before them."""

_CONSEQUENTIAL: Final = _UNSENT | {"_INVALID_DIFFERENT_RECORD"}
"""Errors of records that failed because of another record."""

_EARLIEST_MS: Final = 1
"""The client takes 0 for the current time, so 1970's first millisecond becomes its second."""


class CopyFailed(Exception):
    """Copying cannot continue without a restart; `reason` is the name of an error, for the metrics.

    `copy` is the partition whose record was rejected or cannot be read, if there is one.
    """

    def __init__(self, reason: str, message: str, copy: "PartitionCopy | None" = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.copy = copy


class PartitionCopy:
    """One partition that is copied: its progress and counts.

    Several requests are in flight at a time. That none is accepted after a rejected one depends on
    their sequence numbers, which a broker checks only for producers that it knows in the
    partition. So the first record is sent alone, and so is one after a long silence, in which the
    broker may have forgotten the producer.

    Source: Kafka, `ProducerAppendInfo.checkSequence`; KIP-360.
    """

    __slots__ = (
        *("acknowledged", "acknowledged_s", "counts", "on_delivery", "partition", "progress"),
        *("refused", "topic"),
    )

    def __init__(self, topic: str, partition: int, start: int | None, counts: MirrorCounts) -> None:
        """`start` is the first offset to copy; None for the earliest."""
        self.topic = topic
        self.partition = partition
        self.progress = PartitionProgress(start)
        self.counts = counts.of_topic(topic)
        self.acknowledged_s = 0.0
        """When the destination acknowledged the last record, in seconds since 1970."""
        self.acknowledged = 0
        """How many of the first records in flight have been acknowledged since the last count."""
        self.refused = 0
        """How many of the records after them were refused, in one batch."""
        self.on_delivery: Callable[[KafkaError | None, Message], None] | None = None

    def can_send(self, now_s: float) -> bool:
        """Whether the next record may be sent."""
        return now_s - self.acknowledged_s < PRODUCER_KNOWN_S or self.progress.is_idle


class Sender:
    """A producer and the acknowledgements of its records; for one thread.

    After the first `failure` nothing more is written: the records after a rejected one are never
    sent. The mirror then restarts with another sender.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        provenance: Provenance,
        counts: MirrorCounts,
        count_message: Callable[[str, bytes | None], None],
    ) -> None:
        """`count_message` gets topic and audit mark of each record that the destination has."""
        self.failure: CopyFailed | None = None
        self._provenance = provenance
        self._counts = counts
        self._count_message = count_message
        self._now_s = time.time()
        self._acknowledged: list[PartitionCopy] = []
        self._producer = Producer(settings, logger=CLIENT_LOG)
        # Its arguments are passed by position: the client parses those with names more slowly.
        self._produce: Callable[..., None] = self._producer.produce

    def send(self, copy: PartitionCopy, message: Message) -> bool:
        """Send or skip a record of the source; return False if it cannot be sent now.

        Then there is no room for it yet, or the client rejects it, and `poll` raises.
        """
        topic, offset = copy.topic, message.offset()
        assert offset is not None
        headers = readable_headers(message)
        if headers is None:
            self._skip_unreadable(copy, offset)
            return True
        copied, reason, mark = self._provenance.inspect_headers(headers)
        if reason is not None:
            copy.progress.skip_to(offset + 1)
            self._counts.record_skipped(topic, reason)
            # The destination may lack records of another origin, so only looped ones count.
            if reason is SkipReason.LOOP:
                self._count_message(topic, mark)
            return True
        if not copy.can_send(self._now_s):
            return False
        value, key, time_ms = message.value(), message.key(), message.timestamp()[1]
        on_delivery = copy.on_delivery
        if on_delivery is None:
            on_delivery = copy.on_delivery = partial(self._record_outcome, copy)
        try:
            self._produce(
                topic,
                value,
                key,
                copy.partition,
                on_delivery,
                None,
                time_ms or _EARLIEST_MS,
                copied,
            )
        except BufferError:
            return False
        except KafkaException as refusal:
            self._record_failure(copy, offset, refusal.args[0])
            return False
        size = (len(value) if value else 0) + (len(key) if key else 0)
        copy.progress.record_sent(offset, time_ms, size, mark)
        return True

    def _skip_unreadable(self, copy: PartitionCopy, offset: int) -> None:
        """Skip a record that the client can neither read completely nor write."""
        _log.error(
            "record skipped: a header name is not UTF-8 topic=%s partition=%s offset=%s",
            *(copy.topic, copy.partition, offset),
        )
        copy.progress.skip_to(offset + 1)
        self._counts.record_skipped(copy.topic, SkipReason.UNREADABLE)

    def poll(self, wait_s: float) -> None:
        """Process acknowledgements, waiting up to `wait_s` for one.

        Raises:
            CopyFailed: a record was rejected, now or before.
        """
        self._process(lambda: self._producer.poll(wait_s))
        if self.failure is not None:
            raise self.failure

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is acknowledged; return whether it is."""
        self._process(lambda: self._producer.flush(timeout_s))
        return len(self._producer) == 0 and self.failure is None

    @property
    def in_flight(self) -> int:
        """The number of records that are neither acknowledged nor rejected."""
        return len(self._producer)

    def abandon(self) -> None:
        """Drop what is not acknowledged: whether it was written is unknown."""
        self._producer.purge()
        self._process(lambda: self._producer.flush(_PURGE_S))

    def _process(self, poll: Callable[[], int]) -> None:
        """Process acknowledgements and rejections in `poll`."""
        self._now_s = time.time()
        try:
            poll()
        except KafkaException as fatal:
            # The client fails before it reports the outcome of the records.
            self._producer.purge(in_flight=False)
            self._producer.flush(_REFUSALS_S)
            if self.failure is None:
                error = fatal.args[0]
                self.failure = CopyFailed(error.name(), f"destination failed: {error.str()}")
        for copy in self._acknowledged:
            self._record_acknowledged(copy)
        self._acknowledged.clear()

    def _record_outcome(
        self, copy: PartitionCopy, error: KafkaError | None, _message: Message
    ) -> None:
        """Count the outcome of a record; the client calls this for each, in the order of sending.

        What the destination has are the first records in flight, so it is enough to count them. A
        record behind a refused one is sent again, even if the destination had accepted it.
        """
        if error is not None:
            self._record_refusal(copy, error)
        elif not copy.refused:
            if not copy.acknowledged:
                self._acknowledged.append(copy)
            copy.acknowledged += 1

    def _record_acknowledged(self, copy: PartitionCopy) -> None:
        records = copy.progress.take_acknowledged(copy.acknowledged)
        copy.acknowledged = 0
        copy.acknowledged_s = self._now_s
        copy.counts.record_copied(records, self._now_s)
        if any(records.marks):
            for mark in records.marks:
                self._count_message(copy.topic, mark)

    def _record_refusal(self, copy: PartitionCopy, error: KafkaError) -> None:
        offset = copy.progress.offset_in_flight(copy.acknowledged + copy.refused)
        if error.name() not in _UNSENT:
            copy.refused += 1
        self._record_failure(copy, offset, error)

    def _record_failure(self, copy: PartitionCopy, offset: int, error: KafkaError) -> None:
        # The cause replaces the errors of records that failed with it.
        if self.failure is None or self.failure.reason in _CONSEQUENTIAL:
            self.failure = CopyFailed(
                error.name(),
                f"destination rejected {copy.topic}-{copy.partition} from the source's "
                f"offset {offset} on: {error.str()} ({error.name()})",
                copy,
            )
