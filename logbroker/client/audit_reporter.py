"""Writes audit reports to the topic `audit`, and keeps and retries those that fail."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.audit_format.report import AuditRecord
from logbroker.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)

RETRY_S: Final = 5.0

TIMEOUT_S: Final = 5.0
"""How long an `AuditProducer` tries one report before it is kept for a retry."""

_LINE_EVERY_S: Final = 60.0
"""One line for each dropped record would fill the log."""

UNSENDABLE: Final = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._BAD_MSG,  # noqa: SLF001  the client's public name
    )
)
"""Errors that a retry is unlikely to cure."""

_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
_POLL_S: Final = 0.1

OnDelivery = Callable[[KafkaError | None, Message | None], None]
Produce = Callable[[AuditRecord, OnDelivery], None]


@dataclass(eq=False, slots=True)
class _Handover:
    """Records that were added together; `done` is set when their caller need not wait."""

    left: int
    done: Future[None] = field(default_factory=Future)

    def release(self) -> None:
        """Set `done`."""
        if not self.done.done():
            self.done.set_result(None)


@dataclass(eq=False, slots=True)
class _Entry:
    record: AuditRecord
    handover: _Handover

    @property
    def size(self) -> int:
        """Bytes to keep."""
        return len(self.record.key) + len(self.record.value)


class AuditReporter:
    """Sends records, keeps those that were not acknowledged, and retries them; thread-safe.

    From the first refused record until one is acknowledged, callers do not wait: events and
    offsets matter more than reports. Above `bytes_max` the oldest waiting records are dropped, and
    so are records with one of the errors `drop_on`.
    """

    def __init__(
        self,
        produce: Produce,
        *,
        on_dropped: Callable[[int], object],
        on_refused: Callable[[str], object] = lambda _reason: None,
        bytes_max: float = math.inf,
        drop_on: Collection[int] = (),
    ) -> None:
        """`produce` hands a record to a Kafka client.

        `on_dropped` gets the number of dropped records, `on_refused` the reason of a failure.
        """
        self._produce = produce
        self._on_dropped = on_dropped
        self._on_refused = on_refused
        self._bytes_max = bytes_max
        self._drop_on = drop_on
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque()
        self._waiting_bytes = 0
        self._in_flight: dict[_Entry, None] = {}
        self._handovers: set[_Handover] = set()
        self._is_refused = False
        self._next_s = 0.0
        self._next_line_s = 0.0
        self._dropped = 0

    @property
    def unacknowledged(self) -> list[AuditRecord]:
        """The records that the log does not have yet."""
        with self._lock:
            return [each.record for each in (*self._in_flight, *self._waiting)]

    @property
    def pending(self) -> int:
        """The number of records that the log does not have yet."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def in_flight(self) -> int:
        """The number of records that the client has and that are not answered."""
        return len(self._in_flight)

    @property
    def is_refused(self) -> bool:
        """Whether the latest attempt failed."""
        return self._is_refused

    def add(self, records: Sequence[AuditRecord]) -> Future[None]:
        """Send records; the future is done once they are acknowledged or an attempt fails."""
        handover = _Handover(len(records))
        handover.done.set_running_or_notify_cancel()
        with self._lock:
            for record in records:
                self._append(_Entry(record, handover))
            if self._is_refused or not records:
                handover.release()
            else:
                self._handovers.add(handover)
        self._drop_excess()
        if not self._is_refused:
            self._send(len(self._waiting))
        return handover.done

    def retry(self, now_s: float) -> None:
        """Send what waits if a retry is due: one record if the latest attempt failed, else all."""
        if now_s >= self._next_s:
            self.retry_now()

    def retry_now(self) -> None:
        """Send what waits: one record if the latest attempt failed, else all."""
        if not self._waiting:
            return
        self._next_s = time.monotonic() + RETRY_S
        if not self._is_refused:
            self._send(len(self._waiting))
        elif not self._in_flight:
            self._send(1)

    def close(self) -> None:
        """Count what is pending as dropped, because the process ends."""
        if self.pending:
            self._next_line_s = 0.0
            self._record_dropped(self.pending, "shutdown")

    def _send(self, count: int) -> None:
        for _ in range(count):
            entry = self._pop()
            if entry is None:
                return
            try:
                self._produce(entry.record, partial(self._record_outcome, entry))
            except BufferError:
                self._put_back(entry)  # the client's queue is full; the next retry sends it
                return
            except KafkaException as refusal:
                self._record_outcome(entry, refusal.args[0], None)

    def _record_outcome(self, entry: _Entry, error: KafkaError | None, _: Message | None) -> None:
        if error is None:
            self._record_acknowledged(entry)
        elif error.code() in _PURGED:
            self._put_back(entry)  # the client was replaced; the next one sends it
        elif error.code() in self._drop_on:
            self._finish(entry)
            self._record_dropped(1, error.str())
        else:
            self._record_refused(entry, error)

    def _record_acknowledged(self, entry: _Entry) -> None:
        self._finish(entry)
        was_refused, self._is_refused = self._is_refused, False
        if was_refused:
            _log.info("audit-reports-accepted pending=%s", self.pending)
            self._send(len(self._waiting))

    def _record_refused(self, entry: _Entry, error: KafkaError) -> None:
        self._put_back(entry)
        with self._lock:
            was_refused, self._is_refused = self._is_refused, True
            released, self._handovers = self._handovers, set()
            self._next_s = time.monotonic() + RETRY_S
        for handover in released:
            handover.release()
        self._on_refused(error.str())
        if not was_refused:
            _log.error("audit-reports-refused reason=%s", error.str())
        self._drop_excess()

    def _pop(self) -> _Entry | None:
        with self._lock:
            if not self._waiting:
                return None
            entry = self._waiting.popleft()
            self._waiting_bytes -= entry.size
            self._in_flight[entry] = None
            return entry

    def _put_back(self, entry: _Entry) -> None:
        with self._lock:
            del self._in_flight[entry]
            self._waiting.appendleft(entry)
            self._waiting_bytes += entry.size

    def _append(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self._waiting_bytes += entry.size

    def _drop_excess(self) -> None:
        dropped = 0
        with self._lock:
            while self._waiting_bytes > self._bytes_max:
                entry = self._waiting.popleft()
                self._waiting_bytes -= entry.size
                self._count_down(entry.handover)
                dropped += 1
        if dropped:
            self._record_dropped(dropped, "too many unacknowledged reports")

    def _record_dropped(self, count: int, reason: str) -> None:
        self._on_dropped(count)
        self._dropped += count
        now_s = time.monotonic()
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_EVERY_S
            _log.error("audit-reports-dropped records=%s reason=%s", self._dropped, reason)
            self._dropped = 0

    def _finish(self, entry: _Entry) -> None:
        with self._lock:
            del self._in_flight[entry]
            self._count_down(entry.handover)

    def _count_down(self, handover: _Handover) -> None:
        handover.left -= 1
        if handover.left == 0:
            self._handovers.discard(handover)
            handover.release()


class AuditProducer(AuditReporter):
    """An `AuditReporter` with a Kafka producer of its own; for one thread at a time.

    Offsets may be committed once `report` has returned True.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str = AUDIT_TOPIC,
        *,
        timeout_s: float = TIMEOUT_S,
        client_settings: Mapping[str, Any] | None = None,
        on_dropped: Callable[[int], object] = lambda _count: None,
        on_refused: Callable[[str], object] = lambda _reason: None,
        bytes_max: float = math.inf,
        logger: logging.Logger = _log,
    ) -> None:
        """`timeout_s` limits one attempt to write a report; `logger` is for the client's lines.

        Raises:
            ConfigurationError: librdkafka rejects the settings.
        """
        super().__init__(
            self._produce_record, on_dropped=on_dropped, on_refused=on_refused, bytes_max=bytes_max
        )
        self._topic = topic
        self._timeout_s = timeout_s
        settings = {
            **(client_settings or {}),
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            # An idempotent producer may fail for good, and this one has to last. A report that is
            # written twice counts once.
            "enable.idempotence": False,
            "enable.gapless.guarantee": False,
            "linger.ms": 0,
            "message.timeout.ms": round(timeout_s * 1_000),
            # How long an unknown topic is looked up.
            "topic.metadata.propagation.max.ms": min(1_000, round(timeout_s * 1_000)),
        }
        try:
            self._producer = Producer(settings, logger=logger)
        except KafkaException as error:
            raise ConfigurationError(f"client_settings: {error.args[0].str()}") from None

    def report(self, take_reports: Callable[[], Sequence[AuditRecord]]) -> bool:
        """Write what waits, and then what `take_reports` returns; return whether all is written.

        While a report waits, `take_reports` is not called: counts need less memory than reports.
        It takes at most about twice `timeout_s`.
        """
        if not self.flush():
            return False
        self.add(take_reports())
        return self.flush()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Retry what waits, and wait for the answers; return whether everything is written."""
        # A second longer than an attempt, so that the client ends the attempt.
        end_s = time.monotonic() + (self._timeout_s + 1.0 if timeout_s is None else timeout_s)
        self.retry_now()
        while self.in_flight and (left_s := end_s - time.monotonic()) > 0:
            self._producer.poll(min(_POLL_S, left_s))
        return not self.pending

    def poll(self) -> None:
        """Process answers; returns at once."""
        self._producer.poll(0)

    def _produce_record(self, record: AuditRecord, on_delivery: OnDelivery) -> None:
        self._producer.produce(self._topic, record.value, record.key, on_delivery=on_delivery)
