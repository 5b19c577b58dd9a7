"""Reads the events of one replay out of the log."""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from app.domain.model import OffsetRange, Window
from app.log.complaints import CLIENT_LOG
from app.log.errors import HistoryLost, LogUnavailable
from app.log.event import LoggedEvent, header_text, is_presentable
from logbroker.client.librdkafka import COORDINATOR_ERRORS, readable_headers

_WAIT_S: Final = 0.2
"""The longest a read blocks; whoever wants to stop waits no longer than that."""

_RECORDS_MAX: Final = 1_000

_END_PATIENCE: Final = 4
"""A new leader may take a while to show all it has, and that records are lost is a final word."""


class Passage(NamedTuple):
    """What one read brought: the replay's events below `position`, where the next read begins."""

    events: list[LoggedEvent]
    position: int


class ReplayReader:
    """Reads an offset range from its start, keeping the events of one key and window.

    For one thread at a time. Reading ahead begins at once and is bounded to 4 MB. Every batch's
    CRC is checked. No group is joined and nothing committed: the position is the caller's to keep.
    `properties` are the operator's for the client: TLS, SASL and the like.
    `stall_s` is how long it waits, over all reads in a row, for a log that sends nothing.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        offsets: OffsetRange,
        *,
        key: bytes,
        window: Window,
        properties: Mapping[str, str] = {},
        stall_s: float = 10.0,
    ) -> None:
        configuration = reader_configuration(bootstrap_servers, properties)
        self._consumer = Consumer(configuration, logger=CLIENT_LOG)
        self._consumer.assign([TopicPartition(topic, offsets.partition, offsets.start)])
        self._topic = topic
        self._partition = offsets.partition
        self._place = f"{topic}-{offsets.partition}"
        self._end = offsets.end
        self._position = offsets.start
        self._key = key
        self._window = window
        self._stall_s = stall_s
        self._idle_s = 0.0
        self._log_end: int | None = None

    def move(self, start: int, end: int) -> None:
        """Read `[start, end)` of the same partition from now on."""
        self._consumer.assign([TopicPartition(self._topic, self._partition, start)])
        self._position, self._end = start, end
        self._log_end, self._idle_s = None, 0.0

    def close(self) -> None:
        """Stop reading ahead."""
        self._consumer.close()

    @property
    def is_done(self) -> bool:
        """Whether everything below the end of the range was read."""
        return self._position >= self._end

    def read(self) -> Passage:
        """The events of the next records; blocks for a fifth of a second at most.

        Nothing may have come: then the passage is empty and the position stands.

        Raises:
            HistoryLost: records of the range were deleted or cut off.
            LogUnavailable: the log sent nothing for too long, or something unusable.
        """
        before, began_s = self._position, time.monotonic()
        events = self._take(self._messages())
        if self._position > before:
            self._idle_s = 0.0
            if self._log_end is not None and self._log_end < self._position:
                self._log_end = None  # it grew
        else:
            self._stalled(time.monotonic() - began_s)
        return Passage(events, min(self._position, self._end))

    def _messages(self) -> "list[Message]":
        # `consume` waits until it has all it may take. So wait for one, then take what is there.
        first = self._consumer.poll(_WAIT_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(_RECORDS_MAX, 0)]

    def _take(self, messages: "list[Message]") -> list[LoggedEvent]:
        """Move the position past some records; the events in them that belong to the replay."""
        key, window, events = self._key, self._window, list[LoggedEvent]()
        for message in messages:
            error = message.error()
            if error is not None:
                self._meet(error, message)
                continue
            if message.key() != key:
                continue
            timestamp_ms = message.timestamp()[1]
            if window.from_ms <= timestamp_ms < window.to_ms:
                event = self._event(message, timestamp_ms)
                if event is not None:
                    events.append(event)
        self._move_past(messages)
        return events

    def _move_past(self, messages: "list[Message]") -> None:
        for message in reversed(messages):
            offset = message.offset()
            if offset is not None and message.error() is None:
                self._position = max(self._position, offset + 1)
                return

    def _event(self, message: "Message", timestamp_ms: int) -> LoggedEvent | None:
        """The event that a record holds; None when it is not of our range."""
        offset = message.offset()
        assert offset is not None
        if offset >= self._end:
            return None
        headers = dict(readable_headers(message) or ())
        event_id = header_text(headers.get("event-id"))
        return LoggedEvent(
            offset,
            timestamp_ms,
            self._key,
            # A producer that is not ours may give no id, or one that fits no HTTP header; the
            # place in the log is a name that lasts as well.
            event_id if is_presentable(event_id) else f"{self._place}-{offset}",
            header_text(headers.get("event-type")),
            message.value() or b"",
            header_text(headers.get("origin")),
        )

    def _meet(self, error: KafkaError, message: "Message") -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's public name for it
            # Offsets before it may hold markers of transactions, which are no records.
            self._log_end = message.offset()
            self._position = max(self._position, self._log_end or 0)
        elif code == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            raise HistoryLost(
                f"{self._place} has no offset {self._position} any more: {error.str()}"
            )
        elif code not in COORDINATOR_ERRORS:
            raise LogUnavailable(f"{self._place} at offset {self._position}: {error.str()}")

    def _stalled(self, waited_s: float) -> None:
        self._idle_s += waited_s
        if self._log_end is not None and self._log_end < self._end:
            if self._idle_s < _END_PATIENCE * self._stall_s:
                return
            raise HistoryLost(
                f"{self._place} ends at offset {self._log_end}; it was {self._end} or more before"
            )
        if self._idle_s < self._stall_s:
            return
        raise LogUnavailable(
            f"{self._place} sent nothing from offset {self._position} on for {self._stall_s:g} s"
        )


def reader_configuration(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """What the client is made with; `properties` win over what is chosen here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "rewind-reader",
        # The client wants a group's name although none is joined.
        "group.id": "rewind-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # An offset that is gone must be said, not stepped over.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        # A job may stand still while its receiver is down.
        "max.poll.interval.ms": 86_400_000,
        "queued.min.messages": 5_000,
        # It counts when it asks, and packed; what comes may be many times as large unpacked.
        "fetch.message.max.bytes": 262_144,
        "queued.max.messages.kbytes": 4_096,
        # The default, a second, is how long a queue that was full stays unfilled.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        **properties,
    }
