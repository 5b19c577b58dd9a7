"""Reads the events of one replay from the log."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from app.domain.model import OffsetRange, Window
from app.log.error_text import public_text
from app.log.errors import HistoryLost, LogError, LogUnavailable
from app.log.event import LoggedEvent, account_of, header_text, is_presentable
from app.log.reader_clients import ReaderClients
from app.log.unreadable import log_unreadable
from logbroker.client.batch_skipper import DATA_ERRORS, BatchSkipper, position_after
from logbroker.client.librdkafka import COORDINATOR_ERRORS, readable_headers
from logbroker.client.log_bounds import fetch_bounds
from logbroker.client.skipped_batches import SkippedBatch

_WAIT_S: Final = 0.2
"""The longest time that a read blocks, and so the delay of a stop."""

_RECORDS_MAX: Final = 1_000
_FIRST_RECORDS_MAX: Final = 100
"""Of the first read, whose events should not wait for more."""

_ANSWER_S: Final = 5.0

_END_RETRIES: Final = 4
"""Stall times to wait at an early log end: a new leader may need a while to show all records."""


_INSPECT_AFTER_S: Final = 1.0
"""After how long without records the log is inspected for a batch that no client can read."""


class FetchedEvents(NamedTuple):
    """The replay's events of one read, which ended at `position`.

    `unreadable` are the batches that were skipped in it, cut to the range that is read.
    """

    events: list[LoggedEvent]
    position: int
    unreadable: tuple[SkippedBatch, ...] = ()


class ReplayReader:
    """Reads an offset range, and returns the events of one key and window.

    For one thread at a time. It fetches ahead up to 4 MB, and checks the CRC of every batch. It
    joins no group and commits nothing: the caller stores the position.
    A batch that no client can read is skipped, and reported to `on_unreadable`.
    Offsets in `gap`, which may be set between reads, have no events of the replay.
    `stall_s` is how long consecutive reads may return nothing.
    """

    def __init__(
        self,
        clients: ReaderClients,
        topic: str,
        offsets: OffsetRange,
        *,
        key: bytes,
        window: Window,
        stall_s: float = 10.0,
        on_unreadable: Callable[[SkippedBatch], object] = log_unreadable,
    ) -> None:
        self._clients = clients
        self._consumer = clients.take()
        self._has_failed = False
        self._topic = topic
        self._partition = offsets.partition
        self._place = f"{topic}-{offsets.partition}"
        self.gap = range(0)
        self._records_max = _FIRST_RECORDS_MAX
        self._log_end: int | None = None
        self.move(offsets.start, offsets.end)
        self._key = key
        self._window = window
        self._stall_s = stall_s
        self._skipper = BatchSkipper(clients.properties, on_unreadable)
        self._inspect_after_s = _INSPECT_AFTER_S
        self._rejection: KafkaError | None = None
        self._failure: LogError | None = None

    def move(self, start: int, end: int) -> None:
        """Continue with `[start, end)` of the same partition."""
        self._consumer.assign([TopicPartition(self._topic, self._partition, start)])
        self._position, self._end = start, end
        self._log_end, self._idle_s = None, 0.0

    def close(self) -> None:
        """Return the client."""
        self._clients.put_back(self._consumer, is_usable=not self._has_failed)

    @property
    def position(self) -> int:
        """The offset from which it reads on."""
        return self._position

    @property
    def is_done(self) -> bool:
        """Whether the range is read completely."""
        return self._position >= self._end

    def read(self) -> FetchedEvents:
        """Return the events of the next records, if there are any; blocks for at most 0.2 s.

        Raises:
            HistoryLost: records of the range were deleted or truncated.
            LogUnavailable: no records arrived for `stall_s`, or the log returned an error.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._position in self.gap:
            self.move(self.gap.stop, self._end)
            return FetchedEvents([], min(self._position, self._end))
        before, began_s = self._position, time.monotonic()
        events = self._select_events(self._messages())
        unreadable: tuple[SkippedBatch, ...] = ()
        if self._rejection is not None:
            error, self._rejection = self._rejection, None
            unreadable = self._pass_unreadable(error)
        if self._position > before:
            self._idle_s = 0.0
            self._inspect_after_s = _INSPECT_AFTER_S
            if self._log_end is not None and self._log_end < self._position:
                self._log_end = None  # it grew
        elif self._failure is None:
            self._idle_s += time.monotonic() - began_s
            if self._log_end is None and self._idle_s >= self._inspect_after_s:
                self._inspect_after_s *= 2
                unreadable = self._pass_unreadable(None)
            if not unreadable:
                self._check_stall()
        return FetchedEvents(events, min(self._position, self._end), unreadable)

    def _messages(self) -> "list[Message]":
        # `consume` waits for all it may return. So wait for one, then take what is available.
        first = self._consumer.poll(_WAIT_S)
        if first is None:
            return []
        records_max, self._records_max = self._records_max, _RECORDS_MAX
        return [first, *self._consumer.consume(records_max, 0)]

    def _select_events(self, messages: "list[Message]") -> list[LoggedEvent]:
        """Advance the position past records; return the events that belong to the replay."""
        key, window, events = self._key, self._window, list[LoggedEvent]()
        for count, message in enumerate(messages):
            error = message.error()
            if error is not None:
                if self._handle_error(error, message):
                    continue
                # What follows is read again, or fails again.
                messages = messages[:count]
                break
            if message.key() != key:
                continue
            timestamp_ms = message.timestamp()[1]
            if window.from_ms <= timestamp_ms < window.to_ms:
                event = self._event(message, timestamp_ms)
                if event is not None:
                    events.append(event)
        self._advance(messages)
        return events

    def _advance(self, messages: "list[Message]") -> None:
        for message in reversed(messages):
            offset = message.offset()
            if offset is not None and message.error() is None:
                self._position = max(self._position, offset + 1)
                return

    def _event(self, message: "Message", timestamp_ms: int) -> LoggedEvent | None:
        """Return the event of a record; None outside the range."""
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
            # Other producers may set no id, or one that is invalid in an HTTP header; the position
            # in the log is permanent as well.
            event_id if is_presentable(event_id) else f"{self._place}-{offset}",
            header_text(headers.get("event-type")),
            message.value() or b"",
            header_text(headers.get("origin")),
            account_id=account_of(headers),
        )

    def _handle_error(self, error: KafkaError, message: "Message") -> bool:
        """Whether the records behind an error may be used; stores the error if not."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's public name for it
            # Transaction markers may follow the last record.
            self._log_end = message.offset()
            self._position = max(self._position, self._log_end or 0)
            return True
        self._has_failed = True
        if code in DATA_ERRORS:
            self._rejection = error
        elif code == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            self._handle_reset(error)
        elif code not in COORDINATOR_ERRORS:
            self._failure = LogUnavailable(
                f"{self._place} at offset {self._position}: {public_text(error)}"
            )
        return self._rejection is None and self._failure is None

    def _handle_reset(self, error: KafkaError) -> None:
        """Handle an offset that the log does not have; it may come from a damaged batch."""
        try:
            low, high = fetch_bounds(self._consumer, self._topic, self._partition, _ANSWER_S)
        except KafkaException as refusal:
            self._failure = LogUnavailable(f"{self._place}: {public_text(refusal.args[0])}")
            return
        if low <= self._position < high:
            self._rejection = error
            return
        self._failure = HistoryLost(
            f"{self._place} no longer has offset {self._position}: {public_text(error)}"
        )

    def _pass_unreadable(self, error: KafkaError | None) -> tuple[SkippedBatch, ...]:
        """Skip what cannot be read at the position, and continue behind it.

        If the client reported an `error` and the log cannot be inspected, the next read fails.
        """
        found = self._skipper.skip_unreadable(
            self._topic, self._partition, self._position, error, until=self._end
        )
        if found is None and error is not None:
            # The events in front of it are returned first.
            self._failure = LogUnavailable(
                f"{self._place} at offset {self._position}: {public_text(error)}"
            )
            return ()
        if error is None and (found is None or not found.unreadable):
            return ()
        position = position_after(found, self._position)
        self._consumer.assign([TopicPartition(self._topic, self._partition, position)])
        self._position, self._idle_s = position, 0.0
        if found is None:
            return ()
        return tuple(each._replace(end=min(each.end, self._end)) for each in found.unreadable)

    def _check_stall(self) -> None:
        if self._log_end is not None and self._log_end < self._end:
            if self._idle_s < _END_RETRIES * self._stall_s:
                return
            self._has_failed = True
            raise HistoryLost(
                f"{self._place} ends at offset {self._log_end}; expected {self._end} or more"
            )
        if self._idle_s < self._stall_s:
            return
        self._has_failed = True
        raise LogUnavailable(
            f"no records of {self._place} from offset {self._position} on for {self._stall_s:g} s"
        )
