"""Notes what reaches this data centre's log late, for as long as the database takes to be there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypedDict

from app.config import Settings
from app.domain.lateness import Arrival
from app.log.late_notes import LateBook, note_late, note_unseen
from app.store import StoreUnavailable

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class _Log(TypedDict):
    """Whose log notes are of, and how long it takes and keeps events."""

    origin: str
    lateness_ms: int
    retention_ms: int


class LateEvents:
    """Tells replays where late events lie."""

    def __init__(self, book: LateBook, settings: Settings) -> None:
        self._book = book
        self._log = _Log(
            origin=settings.origin,
            lateness_ms=settings.lateness_ms,
            retention_ms=settings.retention_ms,
        )

    def is_late(self, time_ms: int, now_ms: int) -> bool:
        """Whether an event that the log has, as is seen at `now_ms`, may have come late."""
        return time_ms < now_ms - self._log["lateness_ms"]

    async def note(self, arrivals: Sequence[Arrival]) -> None:
        """Return once those of the arrivals that are late are noted."""
        await _persist(partial(note_late, self._book, arrivals, **self._log))

    async def note_unseen(self, ends: Mapping[int, int]) -> None:
        """Return once it is noted that events below these offsets, by partition, may be late."""
        await _persist(partial(note_unseen, self._book, ends, **self._log))


async def _persist(note: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await note()
        except StoreUnavailable as error:
            _log.warning("late-events-not-noted-yet", extra={"reason": str(error)})
            await asyncio.sleep(_RETRY_S)
        else:
            return
