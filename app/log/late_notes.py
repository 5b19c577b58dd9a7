"""Stores the positions of late events, so that replays of their time find them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from app.domain.lateness import Arrival, LateSpan, late_spans, unseen_spans


class LateEventStore(Protocol):
    """The store of the positions of late events."""

    def record_late_arrivals(
        self, spans: Sequence[LateSpan], retention_ms: int, *, origin: str
    ) -> None:
        """Store the positions of late events in the log of a data centre; blocks."""


async def note_late(
    book: LateEventStore,
    arrivals: Sequence[Arrival],
    *,
    origin: str,
    lateness_ms: int,
    retention_ms: int,
) -> None:
    """Store the positions of the late ones among events that `origin`'s log just acknowledged.

    Raises:
        Exception: the store is unavailable.
    """
    # The time after the acknowledgement: an event that waited long for the log is late as well.
    now_ms = time.time_ns() // 1_000_000
    spans = late_spans(arrivals, on_time_from_ms=now_ms - lateness_ms)
    if spans:
        await asyncio.to_thread(book.record_late_arrivals, spans, retention_ms, origin=origin)


async def note_unseen(
    book: LateEventStore,
    ends: Mapping[int, int],
    *,
    origin: str,
    lateness_ms: int,
    retention_ms: int,
) -> None:
    """Store that late events may lie below these offsets of `origin`'s log, by partition.

    Raises:
        Exception: the store is unavailable.
    """
    # Lookups by time find events that are on time.
    spans = unseen_spans(ends, on_time_from_ms=time.time_ns() // 1_000_000 - lateness_ms)
    if spans:
        await asyncio.to_thread(book.record_late_arrivals, spans, retention_ms, origin=origin)
