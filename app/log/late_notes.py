"""Notes of the events that reached the log late, so that replays of their time find them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from app.domain.lateness import Arrival, LateSpan, late_spans, unseen_spans


class LateBook(Protocol):
    """Where the notes are kept."""

    def record_late_arrivals(
        self, spans: Sequence[LateSpan], retention_ms: int, *, origin: str
    ) -> None:
        """Store where late events lie in the log of a data centre; blocks."""


async def note_late(
    book: LateBook,
    arrivals: Sequence[Arrival],
    *,
    origin: str,
    lateness_ms: int,
    retention_ms: int,
) -> None:
    """Note those of the arrivals, events that `origin`'s log has just taken, that came late.

    Raises:
        Exception: whatever the book raises when it is not there.
    """
    # By the clock after the acknowledgement: what waited long for the log came late as well.
    now_ms = time.time_ns() // 1_000_000
    spans = late_spans(arrivals, on_time_from_ms=now_ms - lateness_ms)
    if spans:
        await asyncio.to_thread(book.record_late_arrivals, spans, retention_ms, origin=origin)


async def note_unseen(
    book: LateBook,
    ends: Mapping[int, int],
    *,
    origin: str,
    lateness_ms: int,
    retention_ms: int,
) -> None:
    """Note that below these offsets of `origin`'s log, by partition, late events may lie.

    Raises:
        Exception: whatever the book raises when it is not there.
    """
    # What is on time lies before where look-ups by time end, whoever brought it.
    spans = unseen_spans(ends, on_time_from_ms=time.time_ns() // 1_000_000 - lateness_ms)
    if spans:
        await asyncio.to_thread(book.record_late_arrivals, spans, retention_ms, origin=origin)
