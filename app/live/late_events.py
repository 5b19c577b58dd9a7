"""Stores the positions of late events in this data centre's log; retries without a database."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypedDict

from app.config import Settings
from app.domain.lateness import Arrival
from app.log.late_notes import LateEventStore, note_late, note_unseen
from app.store import StoreUnavailable

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class _Log(TypedDict):
    """The data centre of the log, its allowed lateness and its retention."""

    origin: str
    lateness_ms: int
    retention_ms: int


class LateEvents:
    """Stores where late events lie, for replays."""

    def __init__(self, book: LateEventStore, settings: Settings) -> None:
        self._book = book
        self._log = _Log(
            origin=settings.origin,
            lateness_ms=settings.lateness_ms,
            retention_ms=settings.retention_ms,
        )

    def is_late(self, time_ms: int, now_ms: int) -> bool:
        """Whether an event that the log has at `now_ms` may have arrived late."""
        return time_ms < now_ms - self._log["lateness_ms"]

    async def store_late(self, arrivals: Sequence[Arrival]) -> None:
        """Return once the late ones of the arrivals are stored."""
        await _retry(partial(note_late, self._book, arrivals, **self._log))

    async def store_unseen(self, ends: Mapping[int, int]) -> None:
        """Return once it is stored that events below these offsets, by partition, may be late."""
        await _retry(partial(note_unseen, self._book, ends, **self._log))


async def _retry(store: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await store()
        except StoreUnavailable as error:
            _log.warning("late-events-not-stored", extra={"reason": str(error)})
            await asyncio.sleep(_RETRY_S)
        else:
            return
