"""Fetches the messages of the partitions that a stream owns, with read-ahead."""

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from logbroker.client.batch_skipper import DATA_ERRORS, BatchSkipper, position_after
from logbroker.client.errors import FetchFailed
from logbroker.client.librdkafka import COORDINATOR_ERRORS, make_consumer, readable_headers
from logbroker.client.log_bounds import fetch_bounds
from logbroker.client.skipped_batches import SkippedBatch
from logbroker.client.stalls import INSPECT_AFTER_S, StallDetector
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
"""The longest time that a fetch without an error or a new assignment blocks."""

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


_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001

_UNREADABLE: Final = DATA_ERRORS | {_OUT_OF_RANGE}

_RESETS: Final = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
"""Where to continue if the log has no record at a position, by `auto.offset.reset`."""


class PartitionEnd(NamedTuple):
    """The reader has reached the end of a partition, at `offset`."""

    partition: int
    offset: int


Fetched = Message | PartitionEnd | FetchFailed


class Fetcher:
    """Reads the partitions of one assignment at a time; not thread-safe.

    librdkafka prefetches up to 16 MB on its own threads, and checks CRCs. A batch that it cannot
    read becomes one `FetchFailed`, and the messages behind it follow.

    librdkafka must not reset positions: an offset that it took from damaged bytes is out of range,
    too, and on a slow network it notices that only after it was assigned to the partition again.
    `_reset_position` resets a position that the log really lacks.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """Create the client; `settings` are librdkafka's.

        With `auto.offset.reset` being `error`, a position out of range is a `FetchFailed`.

        Raises:
            ConfigurationError: librdkafka rejects the settings.
        """
        self._reset = _RESETS.get(settings.get("auto.offset.reset", "latest"))
        self._consumer = make_consumer(settings | _SETTINGS)
        self._assignment: StreamAssignment | None = None
        self._is_closed = False
        self._skipped: list[SkippedBatch] = []
        self._skipper = BatchSkipper(
            {name: value for name, value in settings.items() if isinstance(value, str)},
            self._skipped.append,
        )
        self._starts: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._stopped: set[int] = set()
        """Partitions whose start offset was not found; they are assigned again."""
        self._stalls: StallDetector[int] = StallDetector()
        self._next_check_s = 0.0

    def fetch(self, assignment: StreamAssignment) -> list[Fetched]:
        """Return the next messages of an assignment, in order per partition; blocks up to `WAIT_S`.

        A new assignment starts at its start offsets, after a lookup of its leaders, which takes up
        to a second more.
        """
        if assignment is not self._assignment:
            self._assign(assignment)
        # `consume` blocks until it has the maximum. So wait for one message, then take the rest.
        first = self._consumer.poll(WAIT_S)
        messages = [] if first is None else [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        failed: dict[int, KafkaError | None] = {}
        items = [item for each in messages if (item := self._item(each, failed)) is not None]
        for partition in self._silent_partitions():
            failed.setdefault(partition, None)
        for partition, error in failed.items():
            items += self._skip_unreadable(assignment.topic, partition, error)
        return items

    def _item(
        self, message: "confluent_kafka.Message", failed: dict[int, KafkaError | None]
    ) -> Fetched | None:
        """Return the message, partition end or failure; None to ignore it or to read it again."""
        partition, error = message.partition(), message.error()
        if partition in failed:
            return None
        if error is not None and partition is not None and error.code() in _UNREADABLE:
            offset = message.offset()
            if error.code() in DATA_ERRORS and offset is not None:
                self._positions.setdefault(partition, offset)
            if partition in self._positions:
                failed[partition] = error
                return None
            if error.code() == _OUT_OF_RANGE:
                # Why the start was not found is the next error, which may be transient.
                self._stopped.add(partition)
                return None
        item = _parse_message(message)
        if isinstance(item, Message):
            self._positions[item.partition] = item.offset + 1
        elif isinstance(item, PartitionEnd):
            self._positions[item.partition] = item.offset
        return item

    def _silent_partitions(self) -> list[int]:
        """Return the partitions that have records and made no progress for `INSPECT_AFTER_S`.

        Checks every half of that; returns nothing in between.
        """
        now_s = time.monotonic()
        if now_s < self._next_check_s or self._assignment is None:
            return []
        self._next_check_s = now_s + INSPECT_AFTER_S / 2
        topic, silent = self._assignment.topic, []
        for partition in self._stopped:
            self._assign_at(topic, partition, self._starts[partition])
        self._stopped.clear()
        for partition, start in self._starts.items():
            place = TopicPartition(topic, partition)
            low, end = self._consumer.get_watermark_offsets(place, cached=True)
            if start == OFFSET_BEGINNING and low >= 0:
                self._positions.setdefault(partition, low)
            position = self._positions.get(partition)
            if position is None:
                continue
            waited_s = self._stalls.update(
                partition, position, is_waiting=end > position, now_s=now_s
            )
            if waited_s >= INSPECT_AFTER_S:
                silent.append(partition)
        return silent

    def _skip_unreadable(
        self, topic: str, partition: int, error: KafkaError | None
    ) -> list[Fetched]:
        """Continue behind what the client cannot read; return a failure for each batch."""
        position = self._positions[partition]
        if error is not None and error.code() not in DATA_ERRORS:
            low, end = self._log_range(topic, partition) or (position, position)
            if position == end:
                self._assign_at(topic, partition, position)
                return []
            if not low <= position < end:
                return self._reset_position(topic, partition, error)
        self._skipped.clear()
        found = self._skipper.skip_unreadable(topic, partition, position, error)
        behind = position_after(found, position)
        if behind > position or error is not None:
            self._positions[partition] = behind
            self._assign_at(topic, partition, behind)
        if found is None and error is not None:
            return [FetchFailed(f"{topic}-{partition} at offset {position}: {error.str()}")]
        return [
            FetchFailed(
                f"{topic}-{partition}: offsets {each.start} to {each.end - 1} are skipped, "
                f"because their batch cannot be read: {each.reason}"
            )
            for each in self._skipped
        ]

    def _log_range(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset and the end of a log; None if the broker does not answer."""
        try:
            return fetch_bounds(self._consumer, topic, partition, _METADATA_TIMEOUT_S)
        except KafkaException:
            return None

    def _reset_position(self, topic: str, partition: int, error: KafkaError) -> list[Fetched]:
        """Continue at the start or the end of a log that does not have the position."""
        position = self._positions[partition]
        if self._reset is None:
            return [FetchFailed(f"{topic}-{partition} at offset {position}: {error.str()}")]
        where = "start" if self._reset == OFFSET_BEGINNING else "end"
        _log.warning(
            "continue at the %s of %s-%d: offset %d is out of range",
            *(where, topic, partition, position),
        )
        del self._positions[partition]
        self._starts[partition] = self._reset
        self._assign_at(topic, partition, self._reset)
        return []

    def _assign_at(self, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition, offset)
        self._consumer.incremental_unassign([place])
        self._consumer.incremental_assign([place])

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
        self._starts = dict(assignment.starts)
        self._stopped.clear()
        self._positions = {
            number: start for number, start in assignment.starts.items() if start >= 0
        }
        self._stalls = StallDetector()


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
    "auto.offset.reset": "error",
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
