"""Writes outcomes of deliveries to `delivery_outcomes`, many at a time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from app.log.errors import LogError
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES

_log: Final = logging.getLogger(__name__)

_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_POLL_S: Final = 0.01
_RECORDS_PER_WRITE_MAX: Final = 5_000


class _PendingRecord(NamedTuple):
    record: NewEvent
    written: Callable[[], None]


class OutcomeWriter:
    """Writes records one by one, and calls back when the log has acknowledged each."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher
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
            await self._write([each.record for each in batch])
            del self._pending[: len(batch)]
            self.written_count += len(batch)
            for each in batch:
                each.written()
            if not self._pending:
                self._has_pending.clear()

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
