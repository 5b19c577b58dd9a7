"""Writes outcomes and failed attempts of deliveries to the log, many at a time.

Outcomes are retried until the log has them. Failed attempts are written before the outcomes that
were added after them, so that an owner who sees an outcome sees its attempts too; but no delivery
waits for them: what the topic `delivery_attempts` rejects twice is dropped.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from app.log.errors import LogError
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_ATTEMPTS, DELIVERY_OUTCOMES

_log: Final = logging.getLogger(__name__)

_GATHER_S: Final = 0.1
"""No delivery waits for it. Each write wakes five threads, and flushes each of its partitions."""

_RETRY_S: Final = 1.0
_POLL_S: Final = 0.01
_RECORDS_PER_WRITE_MAX: Final = 5_000


_ATTEMPTS_S_MAX: Final = 10.0
"""How long outcomes wait for failed attempts, as when the topic does not exist."""

_PAUSE_S: Final = 30.0
"""After a rejection, failed attempts are dropped for this time."""


def _ignore() -> None:
    pass


class _PendingRecord(NamedTuple):
    record: NewEvent
    written: Callable[[], None]
    is_attempt: bool = False


class OutcomeWriter:
    """Writes records one by one, and calls back when the log has acknowledged each.

    `count_dropped` is called with the number of failed attempts that were dropped.
    """

    def __init__(
        self, publisher: EventPublisher, count_dropped: Callable[[int], object] = lambda _: None
    ) -> None:
        self._publisher = publisher
        self._count_dropped = count_dropped
        self._attempts_paused_until_s = 0.0
        self._pending: list[_PendingRecord] = []
        self._has_pending = asyncio.Event()
        self.added_count = 0
        """The number of records that were added."""
        self.written_count = 0
        """The number of records that the log has acknowledged, the first ones."""

    @property
    def waiting(self) -> int:
        """The number of records that are not acknowledged."""
        return len(self._pending)

    def add(self, record: NewEvent, written: Callable[[], None]) -> None:
        """Write `record` soon; `written` is called when the log has acknowledged it."""
        self.added_count += 1
        self._pending.append(_PendingRecord(record, written))
        self._has_pending.set()

    def add_attempt(self, record: NewEvent) -> None:
        """Write a record of `delivery_attempts` soon."""
        self.added_count += 1
        self._pending.append(_PendingRecord(record, _ignore, is_attempt=True))
        self._has_pending.set()

    async def flush(self) -> None:
        """Return when all records are written, including those added in the meantime."""
        while self._pending:  # noqa: ASYNC110  seldom, and short
            await asyncio.sleep(_POLL_S)

    async def run(self) -> None:
        """Write records until cancelled."""
        while True:
            await self._has_pending.wait()
            await asyncio.sleep(_GATHER_S)
            batch = self._pending[:_RECORDS_PER_WRITE_MAX]
            attempts = [each.record for each in batch if each.is_attempt]
            are_written = await self._try_to_write_attempts(attempts)
            await self._write([each.record for each in batch if not each.is_attempt])
            if not are_written and not await self._try_to_write_attempts(attempts):
                self._attempts_paused_until_s = time.monotonic() + _PAUSE_S
                self._count_dropped(len(attempts))
            del self._pending[: len(batch)]
            self.written_count += len(batch)
            for each in batch:
                each.written()
            if not self._pending:
                self._has_pending.clear()

    async def _try_to_write_attempts(self, records: list[NewEvent]) -> bool:
        """Whether the log has these records."""
        if not records:
            return True
        if time.monotonic() < self._attempts_paused_until_s:
            return False
        try:
            async with asyncio.timeout(_ATTEMPTS_S_MAX):
                await self._publisher.publish(DELIVERY_ATTEMPTS, records)
        except (LogError, TimeoutError) as error:
            reason = str(error) or f"no response for {_ATTEMPTS_S_MAX:g} s"
            _log.warning("attempts-not-acknowledged", extra={"reason": reason})
            return False
        return True

    async def _write(self, records: list[NewEvent]) -> None:
        while True:
            try:
                await self._publisher.publish(DELIVERY_OUTCOMES, records)
            except LogError as error:
                # Some may be stored: readers accept the same outcome twice.
                _log.warning("outcomes-not-acknowledged", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)
            else:
                return
