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
    """One message, and where it lies; `timestamp_ms` is -1 where the log has none for it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class StreamAssignment:
    """Partitions of one topic, where each is read from, and how far its user is.

    A new claim makes a new share, be it of the same partitions: whatever was fetched for another
    share is never handed out for this one. Not safe on several threads: its stream's lock is.
    """

    def __init__(self, topic: str, starts: Mapping[int, int], lease: SessionLease) -> None:
        """`starts` has the first offset of each partition, or one of librdkafka's logical ones."""
        self.topic = topic
        self.starts = starts
        self.lease = lease
        self._processed: dict[int, int] = {}

    def processed(self, partition: int, next_offset: int) -> None:
        """Everything below `next_offset` was processed, or is no message."""
        self._processed[partition] = next_offset

    @property
    def positions(self) -> dict[int, int]:
        """For each partition of which something was processed, the offset to go on from."""
        return dict(self._processed)


_log: Final = logging.getLogger(__name__)

WAIT_S: Final = 0.1
"""The longest that a fetch blocks: a new share waits no longer until it is read."""

MESSAGES_MAX: Final = 500
"""Messages taken at once from what was read ahead: enough to make taking them cheap."""

_LEADERS_S: Final = 1.0

_PASSING: Final = frozenset(
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
"""What librdkafka tells and then goes on by itself, once the partition is to be had again."""


class PartitionEnd(NamedTuple):
    """There are no messages below `offset` any more but those that came already."""

    partition: int
    offset: int


Fetched = Message | PartitionEnd | FetchFailed


class Fetcher:
    """Reads the partitions of one share at a time; for one thread at a time.

    librdkafka reads ahead on threads of its own, up to 16 MB. CRCs are checked.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are librdkafka's.

        Raises:
            ConfigurationError: librdkafka does not take them.
        """
        self._consumer = make_consumer(settings | _SETTINGS)
        self._share: StreamAssignment | None = None
        self._is_closed = False

    def fetch(self, share: StreamAssignment) -> list[Fetched]:
        """What comes next of a share, in the order of each partition; waits for `WAIT_S` at most.

        A share other than the last one begins at its starts, and its leaders are looked for first.
        """
        if share is not self._share:
            self._assign(share)
        # `consume` waits until it has all it may take. So wait for one, then take what is there.
        first = self._consumer.poll(WAIT_S)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        return [item for message in messages if (item := _item(message)) is not None]

    def rest(self) -> None:
        """Fetch nothing until the next share comes."""
        if self._share is not None:
            self._consumer.unassign()
            self._share = None

    def close(self) -> None:
        """Stop reading ahead, and leave the brokers; closing again changes nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()

    def _assign(self, share: StreamAssignment) -> None:
        # librdkafka looks for the leaders of a topic that is new to it once a second; asked for
        # the topic, it knows them at once. Should nobody answer, it goes on looking by itself.
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(share.topic, timeout=_LEADERS_S)
        self._consumer.assign(
            [TopicPartition(share.topic, number, start) for number, start in share.starts.items()]
        )
        self._share = share


def _item(message: "confluent_kafka.Message") -> Fetched | None:
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
    if error.code() in _PASSING:
        _log.warning("cannot read %s-%s at present: %s", topic, partition, error.str())
        return None
    return FetchFailed(f"{topic}-{partition} at offset {offset}: {error.str()}")


def _note_error(error: KafkaError) -> None:
    _log.warning("fetching: %s", error.str())


_SETTINGS: Final[dict[str, Any]] = {
    # librdkafka wants a name, although nothing of the kind is joined.
    "group.id": "logbroker-paper-consumer",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "error_cb": _note_error,
    # A stream's user may take any time over a message.
    "max.poll.interval.ms": 86_400_000,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    # The default, a second, is how long a queue that was full stays unfilled.
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
