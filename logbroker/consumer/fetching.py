"""Fetches the messages of the partitions that a stream owns, with read-ahead."""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from logbroker.client.errors import FetchFailed
from logbroker.client.librdkafka import COORDINATOR_ERRORS, make_consumer, readable_headers
from logbroker.registry.zookeeper.lease import SessionLease

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A message and its position; `timestamp_ms` is -1 if the log has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class StreamAssignment:
    """The partitions of one topic that a stream owns, their start offsets and their positions.

    Each claim creates a new assignment, even of the same partitions. Messages that were fetched for
    another assignment are never returned for this one. Not thread-safe: the stream's lock protects
    it.
    """

    def __init__(self, topic: str, starts: Mapping[int, int], lease: SessionLease) -> None:
        """`starts` are the first offsets by partition, or logical offsets of librdkafka."""
        self.topic = topic
        self.starts = starts
        self.lease = lease
        self._processed: dict[int, int] = {}

    def record_processed(self, partition: int, next_offset: int) -> None:
        """Record that all messages below `next_offset` are processed."""
        self._processed[partition] = next_offset

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition of which something was processed."""
        return dict(self._processed)


_log: Final = logging.getLogger(__name__)

WAIT_S: Final = 0.1
"""The longest time that a fetch blocks, and so the longest delay of a new assignment."""

MESSAGES_MAX: Final = 500
"""Messages taken from the prefetch queue at once, which keeps the cost per message low."""

_METADATA_TIMEOUT_S: Final = 1.0

_TRANSIENT: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  the client's public names
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
    )
)
"""Errors after which librdkafka retries by itself."""


class PartitionEnd(NamedTuple):
    """The reader has reached the end of a partition, at `offset`."""

    partition: int
    offset: int


Fetched = Message | PartitionEnd | FetchFailed


class Fetcher:
    """Reads the partitions of one assignment at a time; not thread-safe.

    librdkafka prefetches up to 16 MB on its own threads, and checks CRCs.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """Create the client; `settings` are librdkafka's.

        Raises:
            ConfigurationError: librdkafka rejects the settings.
        """
        self._consumer = make_consumer(settings | _SETTINGS)
        self._assignment: StreamAssignment | None = None
        self._is_closed = False

    def fetch(self, assignment: StreamAssignment) -> list[Fetched]:
        """Return the next messages of an assignment, in order per partition; blocks up to `WAIT_S`.

        A new assignment starts at its start offsets, after a lookup of its leaders.
        """
        if assignment is not self._assignment:
            self._assign(assignment)
        # `consume` blocks until it has the maximum. So wait for one message, then take the rest.
        first = self._consumer.poll(WAIT_S)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        return [item for message in messages if (item := _parse_message(message)) is not None]

    def pause(self) -> None:
        """Stop fetching until the next assignment."""
        if self._assignment is not None:
            self._consumer.unassign()
            self._assignment = None

    def close(self) -> None:
        """Stop prefetching and close the connections; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()

    def _assign(self, assignment: StreamAssignment) -> None:
        # librdkafka looks up the leaders of a new topic only once per second. A metadata request
        # finds them at once; if it fails, librdkafka continues by itself.
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(assignment.topic, timeout=_METADATA_TIMEOUT_S)
        self._consumer.assign(
            [
                TopicPartition(assignment.topic, number, start)
                for number, start in assignment.starts.items()
            ]
        )
        self._assignment = assignment


def _parse_message(message: "confluent_kafka.Message") -> Fetched | None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    error = message.error()
    if error is None:
        assert topic is not None
        assert partition is not None
        assert offset is not None
        return Message(
            topic,
            partition,
            offset,
            message.key(),
            message.value(),
            message.timestamp()[1],
            tuple(readable_headers(message) or ()),
        )
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
        assert partition is not None
        assert offset is not None
        return PartitionEnd(partition, offset)
    if error.code() in COORDINATOR_ERRORS:
        return None
    if error.code() in _TRANSIENT:
        _log.warning("fetch failed, will retry %s-%s: %s", topic, partition, error.str())
        return None
    return FetchFailed(f"{topic}-{partition} at offset {offset}: {error.str()}")


def _log_error(error: KafkaError) -> None:
    _log.warning("client error while fetching: %s", error.str())


_SETTINGS: Final[dict[str, Any]] = {
    # librdkafka requires a group id, although the consumer joins no group.
    "group.id": "logbroker-paper-consumer",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "error_cb": _log_error,
    # The user of a stream may take any time to process a message.
    "max.poll.interval.ms": 86_400_000,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    # With the default of one second, a full queue would not be refilled for that time.
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
