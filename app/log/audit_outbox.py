"""Brings what the audit is told into the topic `audit`, and holds up nothing else for it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from logbroker.client.audit_event import AuditRecord

_log: Final = logging.getLogger(__name__)

BYTES_MAX: Final = 8 * 2**20
"""What is kept while `audit` takes nothing: hours of it."""

RETRY_S: Final = 5.0

_AGAIN_AFTER_S: Final = 60.0
"""A line for each record that is dropped would fill the log."""

_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
"""The client was replaced; the next one takes it."""

_HOPELESS: Final = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._BAD_MSG,  # noqa: SLF001  the client's public name for it
)
"""No further attempt would be taken, and all others would wait behind it."""

Settle = Callable[[KafkaError | None, Message | None], None]
Produce = Callable[[AuditRecord, Settle], None]


@dataclass(eq=False, slots=True)
class _Telling:
    """What was handed over at a time; `told` is done when nobody needs to wait for it."""

    left: int
    told: Future[None] = field(default_factory=Future)

    def release(self) -> None:
        """Let nobody wait any more."""
        if not self.told.done():
            self.told.set_result(None)


@dataclass(eq=False, slots=True)
class _Entry:
    record: AuditRecord
    telling: _Telling

    @property
    def size(self) -> int:
        """Bytes to keep."""
        return len(self.record.key) + len(self.record.value)


class AuditOutbox:
    """Sends records, keeps those that the log did not take, and tries them again.

    From the first one that was not taken until one is, nobody waits for any: events and positions
    matter more. Of what is kept meanwhile the oldest are dropped above `BYTES_MAX`; `lost` is
    called with how many. Safe on any thread.
    """

    def __init__(
        self, produce: Produce, lost: Callable[[int], object], bytes_max: int = BYTES_MAX
    ) -> None:
        self._produce = produce
        self._lost = lost
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque()
        self._waiting_bytes = 0
        self._under_way = 0
        self._tellings: set[_Telling] = set()
        self._is_refused = False
        self._next_s = 0.0
        self._next_line_s = 0.0
        self._lost_untold = 0

    @property
    def waiting(self) -> int:
        """Records that the log does not have yet."""
        return len(self._waiting) + self._under_way

    @property
    def under_way(self) -> int:
        """Records that the client has and no answer came for."""
        return self._under_way

    @property
    def is_refused(self) -> bool:
        """Whether the last that is known of `audit` is that it takes nothing."""
        return self._is_refused

    def add(self, records: Sequence[AuditRecord]) -> Future[None]:
        """Send records; done once the log has them, or is known to take none."""
        telling = _Telling(len(records))
        telling.told.set_running_or_notify_cancel()
        with self._lock:
            for record in records:
                self._keep(_Entry(record, telling))
            if self._is_refused or not records:
                telling.release()
            else:
                self._tellings.add(telling)
        self._drop_excess()
        if not self._is_refused:
            self._send(len(self._waiting))
        return telling.told

    def retry(self, now_s: float) -> None:
        """Send what waits, if it is time to; while nothing is taken, one record to try."""
        if now_s < self._next_s or not self._waiting:
            return
        self._next_s = now_s + RETRY_S
        if not self._is_refused:
            self._send(len(self._waiting))
        elif not self._under_way:
            self._send(1)

    def _send(self, count: int) -> None:
        for _ in range(count):
            entry = self._take()
            if entry is None:
                return
            try:
                self._produce(entry.record, partial(self._settle, entry))
            except BufferError:
                self._put_back(entry)  # events fill the client; there is room soon
                return
            except KafkaException as refusal:
                self._settle(entry, refusal.args[0], None)

    def _settle(self, entry: _Entry, error: KafkaError | None, _message: Message | None) -> None:
        if error is None:
            self._taken(entry)
        elif error.code() in _PURGED:
            self._put_back(entry)
        elif error.code() in _HOPELESS:
            self._give_up(entry, error)
        else:
            self._refused(entry, error)

    def _taken(self, entry: _Entry) -> None:
        with self._lock:
            self._under_way -= 1
            self._count_down(entry.telling)
            is_news, self._is_refused = self._is_refused, False
        if is_news:
            _log.info("audit-taken-again", extra={"waiting": len(self._waiting)})
            self._send(len(self._waiting))

    def _refused(self, entry: _Entry, error: KafkaError) -> None:
        self._put_back(entry)
        with self._lock:
            is_news, self._is_refused = not self._is_refused, True
            released, self._tellings = self._tellings, set()
            self._next_s = time.monotonic() + RETRY_S
        for telling in released:
            telling.release()
        if is_news:
            _log.error("audit-not-taken", extra={"reason": error.str()})
        self._drop_excess()

    def _give_up(self, entry: _Entry, error: KafkaError) -> None:
        with self._lock:
            self._under_way -= 1
            self._count_down(entry.telling)
        self._tell_lost(1, error.str())

    def _take(self) -> _Entry | None:
        with self._lock:
            if not self._waiting:
                return None
            entry = self._waiting.popleft()
            self._waiting_bytes -= entry.size
            self._under_way += 1
            return entry

    def _put_back(self, entry: _Entry) -> None:
        with self._lock:
            self._under_way -= 1
            self._waiting.appendleft(entry)
            self._waiting_bytes += entry.size

    def _keep(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self._waiting_bytes += entry.size

    def _drop_excess(self) -> None:
        dropped = 0
        with self._lock:
            while self._waiting_bytes > self._bytes_max:
                entry = self._waiting.popleft()
                self._waiting_bytes -= entry.size
                self._count_down(entry.telling)
                dropped += 1
        if dropped:
            self._tell_lost(dropped, "audit took nothing for too long")

    def _tell_lost(self, count: int, reason: str) -> None:
        self._lost(count)
        self._lost_untold += count
        now_s = time.monotonic()
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + _AGAIN_AFTER_S
            _log.error("audit-lost", extra={"records": self._lost_untold, "reason": reason})
            self._lost_untold = 0

    def _count_down(self, telling: _Telling) -> None:
        telling.left -= 1
        if telling.left == 0:
            self._tellings.discard(telling)
            telling.release()
