"""Reads the topic `audit` from a time to where it ends now: the audit's door to the brokers."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from logbroker.audit.comparison import LOCAL
from logbroker.audit.intake import AuditEntry
from logbroker.client.librdkafka import COORDINATOR_ERRORS, make_consumer, readable_headers
from logbroker.errors import LogbrokerError

REQUEST_TIMEOUT_S: Final = 10.0
"""How long a broker may take to answer."""

SILENCE_S: Final = 30.0
"""How long nothing may come although there is more to read; leaders change in less."""

_MESSAGES_MAX: Final = 500
_POLL_S: Final = 0.2
_ORIGIN_HEADERS: Final = frozenset(("origin", "mirrored-from"))
"""What a mirror adds; see `logbroker.mirror.provenance`."""

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
"""What may be over before the silence is too long, or does not matter."""


class CannotRead(LogbrokerError):
    """The topic is not there, or does not come; the message says which."""


class Extent(NamedTuple):
    """What is to be read of a partition: offsets in [start, end), and whether older are gone."""

    start: int
    end: int
    is_cut: bool


class AuditLog:
    """The topic of monitoring events, as far as it reaches when this is made; a context manager."""

    def __init__(
        self, bootstrap_servers: str, topic: str, since_ms: int, properties: Mapping[str, str]
    ) -> None:
        """Look up which records from a time on there are.

        Raises:
            CannotRead: there is no such topic.
            ConfigurationError: the client does not take the properties.
            KafkaException: no broker answers, or one refuses.
        """
        self._topic = topic
        self._consumer = make_consumer(consumer_settings(bootstrap_servers, properties))
        try:
            self._extents = self._find_extents(since_ms)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the brokers."""
        self._consumer.close()

    @property
    def records(self) -> int:
        """How many offsets are to be read."""
        return sum(max(0, each.end - each.start) for each in self._extents.values())

    @property
    def is_cut(self) -> bool:
        """Whether records of that time, or even later ones, may have been deleted already."""
        return any(each.is_cut for each in self._extents.values())

    def entries(self, clock: Callable[[], float] = time.monotonic) -> Iterator[AuditEntry]:
        """Every record, in the order of each partition.

        Raises:
            CannotRead: for `SILENCE_S` nothing came although there is more.
            KafkaException: a partition cannot be read.
        """
        left = {number: each.end for number, each in self._extents.items() if each.start < each.end}
        self._consumer.assign(
            [TopicPartition(self._topic, number, self._extents[number].start) for number in left]
        )
        heard_s = clock()
        while left:
            for message in self._consumer.consume(_MESSAGES_MAX, _POLL_S):
                number, offset = _place(message)
                if message.error() is None:
                    heard_s = clock()
                    if offset < self._extents[number].end:
                        yield _entry(message)
                    offset += 1
                elif not _is_end(message):
                    continue
                if offset >= left.get(number, offset + 1):
                    del left[number]
            if left and clock() - heard_s > SILENCE_S:
                raise CannotRead(
                    f"topic {self._topic!r} does not come: nothing for {SILENCE_S:g} s, and "
                    f"partitions {', '.join(map(str, sorted(left)))} are not at their ends"
                )

    def _find_extents(self, since_ms: int) -> dict[int, Extent]:
        told = self._consumer.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S)
        metadata = told.topics[self._topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise CannotRead(f"there is no topic {self._topic!r}: nothing was ever audited")
            raise KafkaException(metadata.error)
        asked = [TopicPartition(self._topic, number, since_ms) for number in metadata.partitions]
        found = self._consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        return {each.partition: self._extent(each) for each in found}

    def _extent(self, found: TopicPartition) -> Extent:
        if found.error is not None:
            raise KafkaException(found.error)
        ends = self._consumer.get_watermark_offsets(found, timeout=REQUEST_TIMEOUT_S)
        if ends is None:
            raise CannotRead(
                f"the leader of partition {found.partition} of {self._topic!r} does not answer"
            )
        first, end = ends
        # Negative: no record is so young.
        start = found.offset if found.offset >= 0 else end
        return Extent(start, end, is_cut=0 < first == start)


def consumer_settings(servers: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """For the client that reads; what the reading rests on goes before `properties`."""
    return {**properties, **_SETTINGS, "bootstrap.servers": servers}


def _place(message: "confluent_kafka.Message") -> tuple[int, int]:
    number, offset = message.partition(), message.offset()
    return -1 if number is None else number, -1 if offset is None else offset


def _is_end(message: "confluent_kafka.Message") -> bool:
    """Whether a message without a record says that the log ends there; not, if it may come yet.

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
    """Where a mirror brought a record from: the last header that says so."""
    headers = readable_headers(message) or ()
    told = [value for name, value in headers if name in _ORIGIN_HEADERS and value]
    return told[-1].decode(errors="replace") if told else LOCAL


_SETTINGS: Final[dict[str, Any]] = {
    # librdkafka wants a name, although nothing of the kind is joined.
    "group.id": "logbroker-audit",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # What is deleted while it is read was older than what is compared.
    "auto.offset.reset": "earliest",
    # A transaction that somebody left open would end the reading before the log's end.
    "isolation.level": "read_uncommitted",
    "check.crcs": True,
    "error_cb": lambda _error: None,
    "fetch.wait.max.ms": 100,
}
