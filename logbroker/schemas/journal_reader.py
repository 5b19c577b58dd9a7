"""Reads the log `_schemas` in order, and notices when it is not the same log any more."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from logbroker.client.librdkafka import readable_headers
from logbroker.errors import ConfigurationError
from logbroker.schemas.errors import LogReplaced, StoreUnavailable

_log: Final = logging.getLogger(__name__)

APPEND_HEADER: Final = "append"
"""Has a token of each append, by which its writer recognizes it."""

CLUSTER_HEADER: Final = "decided-at"
"""Has the id of the cluster on whose log a record was decided; copies keep it."""

FETCH_WAIT_MS: Final = 50
"""How long a broker holds an empty fetch; what is asked meanwhile waits behind it."""

_LOST: Final = frozenset(
    (
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001  the client's public names
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
    )
)


class JournalRecord(NamedTuple):
    """A record; `token` and `cluster` are empty where it does not have these headers."""

    offset: int
    key: bytes | None
    value: bytes | None
    token: bytes
    cluster: bytes


class JournalReader:
    """Reads partition 0 of a topic from offset 0 on; for one thread.

    The last record read is remembered. `look_for_end` goes back to it, and when it comes again it
    must be the same.
    """

    def __init__(self, client: dict[str, Any], topic: str, timeout_s: float) -> None:
        """`client` are librdkafka's settings.

        Raises:
            ConfigurationError: librdkafka does not take them.
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
        """Whether all is read that the log had at the last `look_for_end`, and it is the same."""
        return self._is_recognized and self._next >= self._end >= 0

    def look_for_end(self) -> None:
        """Ask where the log ends now, and go back to the last record that was read.

        Raises:
            StoreUnavailable: the log does not answer.
            LogReplaced: it has lost its beginning or its end.
        """
        self._end = -1
        place = TopicPartition(self._topic, 0)
        try:
            found = self._consumer.get_watermark_offsets(place, self._timeout_s, cached=False)
        except KafkaException as error:
            raise StoreUnavailable(error.args[0].str()) from error
        if found is None:
            raise StoreUnavailable("it does not say where it ends")
        start, end = found
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
        """The next record on the way to the end; None if none comes within `wait_s`.

        Raises:
            LogReplaced: it is not the log that was read before.
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
        """Whether a record comes within `wait_s` that was not read before.

        It is left to be read after the next `look_for_end`. Until the last record is seen again,
        nobody knows whose successor it is: brokers that come back may have another log.

        Raises:
            LogReplaced: it is not the log that was read before.
        """
        message = self._poll(wait_s)
        if message is None:
            return False
        return message.error() is None or self._expected_end(message) > self._next

    def close(self) -> None:
        """Leave the brokers."""
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
            raise self._replaced(f"the record at offset {offset} is another one")
        self._is_recognized = True

    def _poll(self, wait_s: float) -> Message | None:
        """A record, or the end of the log; None if neither comes."""
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
            raise self._replaced(f"the record at offset {self._last[0]} is not there any more")

    def _expect_end(self, end: int) -> None:
        if end < self._next:
            raise self._replaced(f"it ends at offset {end}, and was read to {self._next}")

    def _replaced(self, reason: str) -> LogReplaced:
        return LogReplaced(
            f"The log {self._topic!r} was cut or replaced: {reason}."
            " This registry answers nothing any more."
        )


def consumer_settings(client: Mapping[str, Any]) -> dict[str, Any]:
    """For the client that reads the log, with what every client of the registry has."""
    return {**client, **_SETTINGS}


def _first(headers: Iterable[tuple[str, object]], wanted: str) -> bytes:
    for name, value in headers:
        if name == wanted and isinstance(value, bytes):
            return value
    return b""


_SETTINGS: Final[dict[str, Any]] = {
    # librdkafka wants a name, although nothing of the kind is joined and nothing committed.
    "group.id": "logbroker-registry",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.wait.max.ms": FETCH_WAIT_MS,
    "fetch.error.backoff.ms": FETCH_WAIT_MS,
}
