"""Where in the log a window lies."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    ListOffsetsResultInfo,
    OffsetSpec,
)

from app.domain.model import OffsetRange, Window
from app.log.errors import LogUnavailable, TopicMissing, WindowNotRetained
from app.log.group_position import Bounds
from app.log.lookup_clients import LookupClients
from app.log.topics import DELIVERY_LOG
from logbroker.client.partitioner import partition_for_key

_EARLIEST: Final = OffsetSpec.earliest()
_LATEST: Final = OffsetSpec.latest()

_SILENCE_MS: Final = 4_000

_NO_SUCH_RECORD: Final = -1
"""The offset a look-up by time answers with when no record is that young."""


class LogHistory:
    """Looks offsets up by time, in the one partition that holds a webhook's events.

    Safe to use from any thread; every call asks the log anew and remembers nothing.
    `properties` are the operator's for the client: TLS, SASL and the like.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        properties: Mapping[str, str] = {},
        topic: str = DELIVERY_LOG,
        timeout_s: float = 10.0,
    ) -> None:
        self._clients = LookupClients(bootstrap_servers, properties, "rewind-history", _SILENCE_MS)
        self._topic = topic
        self._timeout_s = timeout_s

    def check(self) -> None:
        """Return when the log serves the topic.

        Raises:
            LogUnavailable: it does not.
        """
        self.partition_count()

    def partition_count(self) -> int:
        """How many partitions the topic has.

        Raises:
            TopicMissing: the log has no such topic.
            LogUnavailable: the log does not answer.
        """
        try:
            topics = self._clients.consumer.list_topics(self._topic, self._timeout_s).topics
        except KafkaException as refusal:
            raise self._unavailable(refusal.args[0]) from refusal
        topic = topics[self._topic]
        if topic.error is None:
            return len(topic.partitions)
        if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(f"topic {self._topic}: {topic.error.str()}")
        raise self._unavailable(topic.error)

    def partition_for(self, webhook_id: str) -> int:
        """The partition that holds every event of a webhook: the one its id hashes to.

        Raises:
            LogUnavailable: the log does not answer, or has no such topic.
        """
        return partition_for_key(webhook_id.encode(), self.partition_count())

    def offsets_for(
        self,
        webhook_id: str,
        window: Window,
        disorder_ms: int,
        late_end: Callable[[int], int | None] = lambda _partition: None,
    ) -> OffsetRange:
        """The offsets to read for every event of a window.

        Timestamps need not rise with offsets. Before the start no record is as young as the
        window. Records that are up to `disorder_ms` older than one before them lie before the
        end; those even older do so if they lie below the offset that `late_end` gives for the
        partition.

        Raises:
            WindowNotRetained: records of the window may have been deleted already.
            LogUnavailable: the log does not answer, or has no such topic.
        """
        partition = self.partition_for(webhook_id)
        lookups = {
            "low": self._look_up(partition, _EARLIEST),
            "start": self._look_up(partition, OffsetSpec.for_timestamp(window.from_ms)),
            "end": self._look_up(partition, OffsetSpec.for_timestamp(window.to_ms + disorder_ms)),
        }
        found = {name: self._found(lookup) for name, lookup in lookups.items()}
        _check_retained(found, window)
        late = late_end(partition) or 0
        # Asked last, so that it is not behind what the others found.
        high = self._found(self._look_up(partition, _LATEST)).offset
        start, end = (_or(high, found[name].offset) for name in ("start", "end"))
        # A log that was made anew ends below what was noted of the one before.
        return OffsetRange(partition, start, max(end, min(late, high)))

    def below(self, webhook_id: str, time_ms: int) -> tuple[int, int]:
        """The partition of a webhook, and the offset that its records before some moment lie below.

        That is the offset of the first record with a time of `time_ms` or later, without one the
        end of the log: only records that the log took later, whatever their time, lie above.

        Raises:
            LogUnavailable: the log does not answer, or has no such topic.
        """
        partition = self.partition_for(webhook_id)
        found = self._found(self._look_up(partition, OffsetSpec.for_timestamp(time_ms)))
        if found.offset != _NO_SUCH_RECORD:
            return partition, found.offset
        return partition, self._found(self._look_up(partition, _LATEST)).offset

    def bounds(self, topic: str, partition: int) -> Bounds:
        """The offsets that a partition of any topic of this log holds.

        Raises:
            LogUnavailable: the log does not answer, or has no such partition.
        """
        lookups = [self._look_up(partition, spec, topic) for spec in (_EARLIEST, _LATEST)]
        return Bounds(*(self._found(lookup).offset for lookup in lookups))

    def _look_up(
        self, partition: int, spec: OffsetSpec, topic: str | None = None
    ) -> "Future[ListOffsetsResultInfo]":
        place = TopicPartition(topic or self._topic, partition)
        answers = self._clients.admin.list_offsets({place: spec}, request_timeout=self._timeout_s)
        return answers[place]

    def _found(self, future: "Future[ListOffsetsResultInfo]") -> "ListOffsetsResultInfo":
        try:
            found = future.result()
        except KafkaException as refusal:
            raise self._unavailable(refusal.args[0]) from refusal
        if found.offset < _NO_SUCH_RECORD:
            # librdkafka: an offset that is none, and no error, for a leader that did not answer.
            raise LogUnavailable("the leader of a partition does not answer")
        return found

    def _unavailable(self, error: KafkaError) -> LogUnavailable:
        self._clients.consumer.poll(0)  # it may say why
        return LogUnavailable(f"topic {self._topic}: {error.str()}")


def _check_retained(found: Mapping[str, Any], window: Window) -> None:
    """Refuse a window that starts before the first record left of a log that lost others."""
    low, first = found["low"].offset, found["start"]
    # Were it not the first record left, the one before it would be older than the window. When
    # it is, nobody can tell whether older ones were there. Records as young as this one itself
    # count as left: otherwise a log with one record could not be replayed at all.
    if low > 0 and first.offset == low and window.from_ms < first.timestamp:
        raise WindowNotRetained(window.from_ms, first.timestamp)


def _or(high: int, offset: int) -> int:
    return high if offset == _NO_SUCH_RECORD else offset
