"""Reads the topic `audit` from a time up to its current log end."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logbroker.audit.domain.comparison import LOCAL
from logbroker.audit.domain.report_reader import AuditEntry
from logbroker.client.batch_skipper import DATA_ERRORS, BatchSkipper, position_after
from logbroker.client.librdkafka import COORDINATOR_ERRORS, make_consumer, readable_headers
from logbroker.client.log_bounds import fetch_bounds
from logbroker.client.properties import (
    BINDING_PROPERTIES,
    BOOTSTRAP_PROPERTIES,
    CONSUMER_PROPERTIES,
    PLACEHOLDER_SERVERS,
    PropertyRules,
)
from logbroker.client.skipped_batches import SkippedBatch
from logbroker.client.stalls import INSPECT_AFTER_S
from logbroker.errors import LogbrokerError

REQUEST_TIMEOUT_S: Final = 10.0
"""How long a broker may take to answer."""

SILENCE_S: Final = 30.0
"""How long no record may arrive before the log end; leader changes take less."""

_RESET: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  the client's public name for it
_MESSAGES_MAX: Final = 500
_POLL_S: Final = 0.2
_ORIGIN_HEADERS: Final = frozenset(("origin", "mirrored-from"))
"""Headers of mirrors; see `logbroker.mirror.domain.provenance`."""

_PASSING: Final = frozenset(
    (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        *COORDINATOR_ERRORS,
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001  the client's public names
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
    )
)
"""Errors that may pass within `SILENCE_S`, or do not matter."""


class AuditTopicUnreadable(LogbrokerError):
    """The topic does not exist or cannot be read; the message says which."""


class ReadRange(NamedTuple):
    """The offsets to read of a partition, [start, end), and whether older ones are deleted."""

    start: int
    end: int
    begins_after_deletion: bool


class _PartitionReads:
    """The ends of the partitions that are not read completely, and the positions in them."""

    def __init__(self, ranges: Mapping[int, ReadRange]) -> None:
        self.left = {number: each.end for number, each in ranges.items() if each.start < each.end}
        self.positions = {number: ranges[number].start for number in self.left}
        self.failed: dict[int, KafkaError | None] = {}
        """The partitions that cannot be read at their positions, with the client's errors."""

    def add(self, message: "confluent_kafka.Message") -> bool:
        """Add a message; whether it is a record of a range.

        Raises:
            KafkaException: the partition cannot be read, for a reason other than its data.
        """
        number, offset = _place(message)
        if number not in self.left or number in self.failed:
            return False  # behind the range, or read again
        error = message.error()
        if error is None:
            is_in_range = offset < self.left[number]
            self.move_to(number, offset + 1)
            return is_in_range
        if _is_unreadable(error):
            self.failed[number] = error
        elif _is_end(message):
            self.move_to(number, offset)
        return False

    def move_to(self, number: int, position: int) -> None:
        """Set the next offset of a partition."""
        self.positions[number] = position
        if position >= self.left[number]:
            del self.left[number]


class AuditLog:
    """The topic of audit reports, up to its log end when this is created; a context manager."""

    def __init__(
        self, bootstrap_servers: str, topic: str, since_ms: int, properties: Mapping[str, str]
    ) -> None:
        """Look up the records since a time.

        Raises:
            AuditTopicUnreadable: the topic does not exist.
            ConfigurationError: librdkafka rejects the properties.
            KafkaException: no broker answers, or one rejects a request.
        """
        self.unreadable: list[SkippedBatch] = []
        """The batches that `entries` skipped because they cannot be read."""
        self._topic = topic
        self._skipper = BatchSkipper(
            {**properties, "bootstrap.servers": bootstrap_servers}, self.unreadable.append
        )
        self._consumer = make_consumer(consumer_settings(bootstrap_servers, properties))
        try:
            self._ranges = self._find_ranges(since_ms)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self._consumer.close()

    @property
    def records(self) -> int:
        """The number of offsets to read."""
        return sum(max(0, each.end - each.start) for each in self._ranges.values())

    @property
    def begins_after_deletion(self) -> bool:
        """Whether records of that time or later may have been deleted."""
        return any(each.begins_after_deletion for each in self._ranges.values())

    def entries(self, clock: Callable[[], float] = time.monotonic) -> Iterator[AuditEntry]:
        """Yield every record, in the order of each partition; skips batches that cannot be read.

        Raises:
            AuditTopicUnreadable: no record arrived for `SILENCE_S`.
            KafkaException: a partition cannot be read.
        """
        reads = _PartitionReads(self._ranges)
        self._consumer.assign(
            [TopicPartition(self._topic, *each) for each in reads.positions.items()]
        )
        arrived_s = inspected_s = clock()
        while reads.left:
            reads.failed.clear()
            for message in self._consumer.consume(_MESSAGES_MAX, _POLL_S):
                if message.error() is None:
                    arrived_s = inspected_s = clock()
                if reads.add(message):
                    yield _entry(message)
            if clock() - inspected_s > INSPECT_AFTER_S:
                # The client reports nothing for records that do not parse.
                inspected_s = clock()
                reads.failed |= dict.fromkeys(reads.left)
            if self._pass_failed(reads):
                arrived_s = clock()
            if reads.left and clock() - arrived_s > SILENCE_S:
                raise AuditTopicUnreadable(
                    f"reading topic {self._topic!r} timed out: no record for {SILENCE_S:g} s; "
                    f"unfinished partitions: {', '.join(map(str, sorted(reads.left)))}"
                )

    def _pass_failed(self, reads: "_PartitionReads") -> bool:
        """Continue behind what cannot be read; return whether any position has moved."""
        has_moved = False
        for number, error in reads.failed.items():
            position = reads.positions[number]
            behind = self._continue_after(number, position, reads.left[number], error)
            has_moved = has_moved or behind > position
            reads.move_to(number, behind)
        return has_moved

    def _continue_after(
        self, number: int, position: int, end: int, error: KafkaError | None
    ) -> int:
        """Skip what cannot be read at a position; return where the partition is read further."""
        behind = position
        if error is not None and error.code() == _RESET:
            # Records deleted during the read are older than the compared period.
            bounds = fetch_bounds(self._consumer, self._topic, number, REQUEST_TIMEOUT_S)
            behind = max(position, bounds.low)
        if behind == position:
            found = self._skipper.skip_unreadable(self._topic, number, position, error, until=end)
            if found is None and error is not None:
                raise KafkaException(error)
            behind = position_after(found, position)
        if behind > position or error is not None:
            place = TopicPartition(self._topic, number, behind)
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
        return behind

    def _find_ranges(self, since_ms: int) -> dict[int, ReadRange]:
        topics = self._consumer.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S).topics
        metadata = topics[self._topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise AuditTopicUnreadable(
                    f"topic {self._topic!r} does not exist: there are no audit reports"
                )
            raise KafkaException(metadata.error)
        requested = [
            TopicPartition(self._topic, number, since_ms) for number in metadata.partitions
        ]
        found = self._consumer.offsets_for_times(requested, timeout=REQUEST_TIMEOUT_S)
        return {each.partition: self._range(each) for each in found}

    def _range(self, found: TopicPartition) -> ReadRange:
        if found.error is not None:
            raise KafkaException(found.error)
        first, end = fetch_bounds(self._consumer, self._topic, found.partition, REQUEST_TIMEOUT_S)
        # Negative: no record is as young.
        start = found.offset if found.offset >= 0 else end
        return ReadRange(start, end, begins_after_deletion=0 < first == start)


def consumer_settings(servers: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the consumer's settings; the choices here override `properties`."""
    return {**properties, **_SETTINGS, "bootstrap.servers": servers}


def _place(message: "confluent_kafka.Message") -> tuple[int, int]:
    number, offset = message.partition(), message.offset()
    return -1 if number is None else number, -1 if offset is None else offset


def _is_unreadable(error: KafkaError) -> bool:
    """Whether a client cannot read a batch, or took an offset from a damaged one."""
    return error.code() in DATA_ERRORS or error.code() == _RESET


def _is_end(message: "confluent_kafka.Message") -> bool:
    """Whether a message with an error is the log end; False for passing errors.

    Raises:
        KafkaException: the partition cannot be read.
    """
    error = message.error()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
        return True
    if error.code() not in _PASSING:
        raise KafkaException(error)
    return False


def _entry(message: "confluent_kafka.Message") -> AuditEntry:
    number, offset = _place(message)
    return AuditEntry(number, offset, message.timestamp()[1], message.value(), _origin(message))


def _origin(message: "confluent_kafka.Message") -> str:
    """Return where a mirror copied a record from: the last header counts."""
    headers = readable_headers(message) or ()
    origins = [value for name, value in headers if name in _ORIGIN_HEADERS and value]
    return origins[-1].decode(errors="replace") if origins else LOCAL


_SETTINGS: Final[dict[str, Any]] = {
    # librdkafka requires a name, although no group is joined.
    "group.id": "logbroker-audit",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # A client that takes an offset from a damaged batch must not begin at the earliest record.
    "auto.offset.reset": "error",
    # An open transaction would end the read before the log end.
    "isolation.level": "read_uncommitted",
    "check.crcs": True,
    "error_cb": lambda _error: None,
    "fetch.wait.max.ms": 100,
}

DECIDED: Final = (
    BOOTSTRAP_PROPERTIES
    | CONSUMER_PROPERTIES
    | BINDING_PROPERTIES
    | frozenset(("isolation.level", "fetch.wait.max.ms"))
)
"""Properties that the audit sets itself, by each of their librdkafka names."""


def _make_client(properties: Mapping[str, Any]) -> None:
    Consumer(consumer_settings(PLACEHOLDER_SERVERS, properties))


RULES: Final = PropertyRules("the audit", DECIDED, _make_client)
