"""Read the log `_schemas` in order, and detect that it was truncated or replaced."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from logbroker.client.librdkafka import readable_headers
from logbroker.client.log_bounds import fetch_bounds
from logbroker.errors import ConfigurationError
from logbroker.schemas.errors import LogReplaced, StoreUnavailable

_log: Final = logging.getLogger(__name__)

APPEND_HEADER: Final = "append"
"""Header with the token of an append, by which the writer recognizes its record."""

CLUSTER_HEADER: Final = "decided-at"
"""Header with the id of the cluster where a record was decided; mirrors keep it."""

FETCH_WAIT_MS: Final = 50
"""How long a broker holds an empty fetch; other requests of the connection wait behind it."""

_LOST: Final = frozenset(
    (
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001  the client's public names
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
    )
)


class JournalRecord(NamedTuple):
    """A record; `token` and `cluster` are empty if the headers are missing."""

    offset: int
    key: bytes | None
    value: bytes | None
    token: bytes
    cluster: bytes


class JournalReader:
    """Reads partition 0 of a topic from offset 0; for one thread.

    It remembers the last record. `seek_end` seeks back to it; the record read there must be the
    same.
    """

    def __init__(self, client: dict[str, Any], topic: str, timeout_s: float) -> None:
        """`client` are librdkafka properties.

        Raises:
            ConfigurationError: librdkafka rejects them.
        """
        try:
            self._consumer = Consumer(consumer_settings(client), logger=_log)
        except KafkaException as error:
            raise ConfigurationError(f"client_settings: {error.args[0].str()}") from None
        self._topic = topic
        self._timeout_s = timeout_s
        self._next = 0
        self._last: tuple[int, tuple[object, ...]] | None = None
        self._is_recognized = False
        self._end = -1

    @property
    def is_at_end(self) -> bool:
        """Whether the end that `seek_end` found is reached and the last record confirmed."""
        return self._is_recognized and self._next >= self._end >= 0

    def seek_end(self) -> None:
        """Query the end offset of the log, and seek back to the last record read.

        Raises:
            StoreUnavailable: the log is unreachable.
            LogReplaced: the log has lost its beginning or its end.
        """
        self._end = -1
        try:
            start, end = fetch_bounds(self._consumer, self._topic, 0, self._timeout_s)
        except KafkaException as error:
            raise StoreUnavailable(error.args[0].str()) from error
        if start > 0:
            raise LogReplaced(
                f"The log {self._topic!r} begins at offset {start}: the schemas before are lost."
            )
        self._expect_end(end)
        self._end = end
        self._is_recognized = self._last is None
        back = self._next if self._last is None else self._last[0]
        self._consumer.assign([TopicPartition(self._topic, 0, back)])

    def read(self, wait_s: float) -> JournalRecord | None:
        """The next record before the end; None if none arrives within `wait_s`.

        Raises:
            LogReplaced: the log differs from the one that was read.
        """
        message = self._poll(wait_s)
        if message is None:
            return None
        if message.error() is not None:
            end = self._expected_end(message)
            self._expect_recognized()
            self._next = end
            return None
        return self._record(message)

    def has_news(self, wait_s: float) -> bool:
        """Whether a new record arrives within `wait_s`.

        The record is read after the next `seek_end`. Until the last record is confirmed, its
        predecessor is unknown: brokers that return may have another log.

        Raises:
            LogReplaced: the log differs from the one that was read.
        """
        message = self._poll(wait_s)
        if message is None:
            return False
        return message.error() is None or self._expected_end(message) > self._next

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _record(self, message: Message) -> JournalRecord | None:
        offset = message.offset()
        assert offset is not None
        content = (message.key(), message.value(), message.timestamp())
        if offset < self._next:
            self._recognize(offset, content)
            return None
        self._expect_recognized()
        self._next = offset + 1
        self._last = offset, content
        headers = readable_headers(message) or ()
        token, cluster = (_first(headers, name) for name in (APPEND_HEADER, CLUSTER_HEADER))
        return JournalRecord(offset, message.key(), message.value(), token, cluster)

    def _recognize(self, offset: int, content: tuple[object, ...]) -> None:
        if (offset, content) != self._last:
            raise self._replaced(f"the record at offset {offset} differs")
        self._is_recognized = True

    def _poll(self, wait_s: float) -> Message | None:
        """A record, or the end of the log; None if neither arrives."""
        message = self._consumer.poll(wait_s)
        error = None if message is None else message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  public
            return message
        if error.code() in _LOST:
            raise self._replaced(error.str())
        _log.warning("cannot read %s at present: %s", self._topic, error.str())
        return None

    def _expected_end(self, message: Message) -> int:
        end = message.offset()
        assert end is not None
        self._expect_end(end)
        return end

    def _expect_recognized(self) -> None:
        if not self._is_recognized:
            assert self._last is not None
            raise self._replaced(f"the record at offset {self._last[0]} is missing")

    def _expect_end(self, end: int) -> None:
        if end < self._next:
            raise self._replaced(f"it ends at offset {end}, and was read to {self._next}")

    def _replaced(self, reason: str) -> LogReplaced:
        return LogReplaced(
            f"The log {self._topic!r} was cut or replaced: {reason}."
            " This registry rejects all requests."
        )


def consumer_settings(client: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of the client that reads the log."""
    return {**client, **_SETTINGS}


def _first(headers: Iterable[tuple[str, object]], wanted: str) -> bytes:
    for name, value in headers:
        if name == wanted and isinstance(value, bytes):
            return value
    return b""


_SETTINGS: Final[dict[str, Any]] = {
    # librdkafka requires a group id, although the client joins no group and commits nothing.
    "group.id": "logbroker-registry",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.wait.max.ms": FETCH_WAIT_MS,
    "fetch.error.backoff.ms": FETCH_WAIT_MS,
}
