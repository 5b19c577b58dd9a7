"""Writes what became of events to `delivery_outcomes`, many at a time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from app.log.errors import LogError
from app.log.event import OwedEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES

_log: Final = logging.getLogger(__name__)

_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.01
_AT_A_TIME_MAX: Final = 5_000


class _Line(NamedTuple):
    record: OwedEvent
    written: Callable[[], None]


class OutcomeWriter:
    """Takes records one by one, and says of each when the log has it for good."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher
        self._lines: list[_Line] = []
        self._is_any = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many are not in the log yet."""
        return len(self._lines)

    def add(self, record: OwedEvent, written: Callable[[], None]) -> None:
        """Write `record` soon; `written` is called once the log has acknowledged it."""
        self._lines.append(_Line(record, written))
        self._is_any.set()

    async def flush(self) -> None:
        """Return when everything added so far, or meanwhile, is written."""
        while self._lines:  # noqa: ASYNC110  a few looks, seldom
            await asyncio.sleep(_LOOK_S)

    async def run(self) -> None:
        """Write what comes until cancelled."""
        while True:
            await self._is_any.wait()
            await asyncio.sleep(_GATHER_S)
            lines = self._lines[:_AT_A_TIME_MAX]
            await self._write([line.record for line in lines])
            del self._lines[: len(lines)]
            for line in lines:
                line.written()
            if not self._lines:
                self._is_any.clear()

    async def _write(self, records: list[OwedEvent]) -> None:
        while True:
            try:
                await self._publisher.publish(DELIVERY_OUTCOMES, records)
            except LogError as error:
                # Some may be there: whoever reads them takes the same outcome twice.
                _log.warning("outcomes-not-written-yet", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)
            else:
                return
