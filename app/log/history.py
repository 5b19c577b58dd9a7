"""The offset range of a window."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    ListOffsetsResultInfo,
    OffsetSpec,
)

from app.domain.minute_index import TimedOffset, WindowNotes
from app.domain.model import OffsetRange, Window
from app.log.errors import WindowNotRetained
from app.log.lookup_client import LookupClient, check_led
from app.log.topics import DELIVERY_LOG
from logbroker.client.admin import EARLIEST, LATEST, since
from logbroker.client.log_bounds import Bounds
from logbroker.client.partitioner import partition_for_key

_SILENCE_MS: Final = 4_000

_NO_SUCH_RECORD: Final = -1
"""The offset of a lookup by time if no record is as young."""


class LogHistory:
    """Looks up offsets by time, in the partition of a webhook. Thread-safe; nothing is cached.

    `properties` are the operator's for the client, such as those of TLS and SASL.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        properties: Mapping[str, str] = {},
        topic: str = DELIVERY_LOG,
        timeout_s: float = 10.0,
    ) -> None:
        self._client = LookupClient(bootstrap_servers, properties, _SILENCE_MS)
        self._topic = topic
        self._timeout_s = timeout_s

    def check(self) -> None:
        """Check that the log serves the topic.

        Raises:
            LogUnavailable: it does not.
        """
        self.partition_count()

    def partition_count(self) -> int:
        """Return the number of partitions of the topic.

        Raises:
            TopicMissing: the topic does not exist.
            LogUnavailable: the log does not answer.
        """
        return len(self._client.partitions(self._topic, self._timeout_s))

    def partition_for(self, webhook_id: str) -> int:
        """Return the partition of a webhook: the one that its id hashes to.

        Raises:
            LogUnavailable: the log does not answer, the topic does not exist, or the partition has
                no leader.
        """
        partitions = self._client.partitions(self._topic, self._timeout_s)
        number = partition_for_key(webhook_id.encode(), len(partitions))
        check_led(partitions, number)
        return number

    def offsets_for(
        self,
        webhook_id: str,
        window: Window,
        disorder_ms: int,
        read_notes: Callable[[int], WindowNotes] = lambda _partition: WindowNotes(),
    ) -> OffsetRange:
        """Return the offset range that contains every event of a window.

        Timestamps need not grow with offsets. No record before the start is as young as the
        window. Records up to `disorder_ms` older than an earlier one are below the end, and so
        are late ones by the notes that `read_notes` returns for the partition. The end is lower
        if the minute index of the same log reaches beyond it.

        Raises:
            WindowNotRetained: records of the window may have been deleted already.
            LogUnavailable: the log does not answer, or the topic does not exist.
        """
        partition, limit_ms = self.partition_for(webhook_id), window.to_ms + disorder_ms
        lookups = {
            "low": self._look_up(partition, EARLIEST),
            "start": self._look_up(partition, since(window.from_ms)),
            "end": self._look_up(partition, since(limit_ms)),
            "high": self._look_up(partition, LATEST),
        }
        late_end, indexed = read_notes(partition)  # while the log looks up the others
        if indexed is not None and indexed.newest.time_ms >= limit_ms:
            lookups["newest"] = self._look_up(partition, since(indexed.newest.time_ms))
        found = {name: self._found(lookup) for name, lookup in lookups.items()}
        _check_retained(found, window)
        high = found["high"].offset
        start, end = (_or(high, found[name].offset) for name in ("start", "end"))
        # A recreated topic may end below the stored late offsets of its predecessor. A log that
        # grows meanwhile may end below the start: those records were written after the call.
        end = max(start, end, min(late_end, high))
        if indexed is not None and "newest" in found:
            newest = found["newest"]
            # Otherwise the index is of a log that was recreated or truncated.
            if TimedOffset(newest.offset, newest.timestamp) == indexed.newest:
                end = min(end, indexed.end_from(start, late_end))
        return OffsetRange(partition, start, end)

    def first_since(self, partition: int, time_ms: int) -> TimedOffset:
        """Return the first record of a partition at a time or later; without one, offset -1.

        Raises:
            LogUnavailable: the log does not answer, or the topic does not exist.
        """
        check_led(self._client.partitions(self._topic, self._timeout_s), partition)
        found = self._found(self._look_up(partition, since(time_ms)))
        return TimedOffset(found.offset, found.timestamp)

    def end_before(self, webhook_id: str, time_ms: int) -> tuple[int, int]:
        """Return the partition of a webhook, and the end of its records before a time.

        That is the offset of the first record at `time_ms` or later, else the log end. Records
        above it were written later, whatever their time.

        Raises:
            LogUnavailable: the log does not answer, or the topic does not exist.
        """
        partition = self.partition_for(webhook_id)
        found = self._found(self._look_up(partition, since(time_ms)))
        if found.offset != _NO_SUCH_RECORD:
            return partition, found.offset
        return partition, self._found(self._look_up(partition, LATEST)).offset

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Return the offsets of a partition of any topic.

        Raises:
            LogUnavailable: the log does not answer, or the partition does not exist or has no
                leader.
        """
        check_led(self._client.partitions(topic, self._timeout_s), partition)
        lookups = [self._look_up(partition, spec, topic) for spec in (EARLIEST, LATEST)]
        return Bounds(*(self._found(lookup).offset for lookup in lookups))

    def _look_up(
        self, partition: int, spec: OffsetSpec, topic: str | None = None
    ) -> "Future[ListOffsetsResultInfo]":
        place = TopicPartition(topic or self._topic, partition)
        answers = self._client.admin.list_offsets({place: spec}, request_timeout=self._timeout_s)
        return answers[place]

    def _found(self, future: "Future[ListOffsetsResultInfo]") -> "ListOffsetsResultInfo":
        return self._client.found(self._topic, future)


def _check_retained(found: Mapping[str, Any], window: Window) -> None:
    """Reject a window that starts before the first retained record of a log that lost others."""
    low, first = found["low"].offset, found["start"]
    # If the first record of the window is also the first retained one, older records of the window
    # may have been deleted. A window that starts with this record is accepted: otherwise a log
    # with one record could not be replayed.
    if low > 0 and first.offset == low and window.from_ms < first.timestamp:
        raise WindowNotRetained(window.from_ms, first.timestamp)


def _or(high: int, offset: int) -> int:
    return high if offset == _NO_SUCH_RECORD else offset
