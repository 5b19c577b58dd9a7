"""Notes of the events that reached the log late, so that replays of their time find them."""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from app.replay.lateness import Arrival, LateSpan, late_spans


class LateBook(Protocol):
    """Where the notes are kept."""

    def note_late_arrivals(self, spans: Sequence[LateSpan], retention_ms: int) -> None:
        """Store where late events lie; blocks."""


async def note_late(
    book: LateBook, arrivals: Sequence[Arrival], *, lateness_ms: int, retention_ms: int
) -> None:
    """Note those of the arrivals, events that the log has just acknowledged, that came late.

    Raises:
        Exception: whatever the book raises when it is not there.
    """
    # By the clock after the acknowledgement: what waited long for the log came late as well.
    now_ms = time.time_ns() // 1_000_000
    spans = late_spans(arrivals, on_time_from_ms=now_ms - lateness_ms)
    if spans:
        await asyncio.to_thread(book.note_late_arrivals, spans, retention_ms)
