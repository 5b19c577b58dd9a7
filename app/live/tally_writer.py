"""Stores what the live path has counted, beside its work, and deletes what is too old."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from app.domain.hours import HOUR_MS
from app.domain.tallies import CountedTally, Span, TallyCounter
from app.process import on_own_thread
from app.store import Store, StoreUnavailable
from app.store.tallies import ROWS_PER_ADD

_log: Final = logging.getLogger(__name__)

FLUSH_S: Final = 5.0

REST: Final = 19
"""How many times as long as the last write took the next one waits at least: with so many webhooks
that a write takes seconds, it so takes a twentieth of the time, and the database has the rest."""

FORGET_S: Final = 60.0
PORTIONS_PER_FORGETTING: Final = 100

SETTLED_KEPT_MS: Final = 3 * HOUR_MS
"""Two hours are looked at, at most; the third is for clocks and for who comes late."""

_LAST_S: Final = 1.0
"""What the last write may take: a process that ends while the database hangs does not wait."""


class TallyWriter:
    """Adds counts to the database every few seconds. Each write has a thread of its own.

    While the database is away the counts grow up to their bounds, and nothing else is held up. A
    crash loses those of the last seconds; a write whose end nobody heard of is made again, and its
    counts are then twice in the sums.
    """

    def __init__(
        self,
        store: Store,
        tallies: TallyCounter,
        origin: str,
        retention_ms: int,
        flush_s: float = FLUSH_S,
    ) -> None:
        self._store = store
        self._tallies = tallies
        self._origin = origin
        self._kept_ms = {Span.SETTLED: SETTLED_KEPT_MS, Span.EVENT: retention_ms}
        self._flush_s = flush_s
        self._waiting: list[CountedTally] = []
        """Taken and not stored; those of the last portion maybe."""
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Store what is counted until cancelled."""
        forget_s, took_s = 0.0, 0.0
        while True:
            await asyncio.sleep(max(self._flush_s, REST * took_s))
            began_s = time.monotonic()
            try:
                await self.flush()
                if began_s >= forget_s:
                    await on_own_thread(partial(self._forget, time.time_ns() // 1_000_000))
                    forget_s = began_s + FORGET_S
            except StoreUnavailable as error:
                # However long it hung: that says nothing of what a write takes.
                took_s = 0.0
                _log.warning("tallies-not-stored-yet", extra={"reason": str(error)})
            else:
                took_s = time.monotonic() - began_s

    async def finish(self) -> None:
        """Store what is left, if the database is quick about it."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(_LAST_S):
                await self.flush()

    async def flush(self) -> None:
        """Store what was counted by now.

        Raises:
            StoreUnavailable: the database does not answer; the rest waits for the next call.
        """
        async with self._writing:
            # Not taken before there is room: those who count know how much they may keep.
            if self._waiting:
                await on_own_thread(partial(self._write, list))
            if self._tallies:
                await on_own_thread(partial(self._write, self._tallies.drain()))

    def _write(self, taken: Callable[[], list[CountedTally]]) -> None:
        self._waiting += taken()
        while self._waiting:
            self._store.add_tallies(self._waiting[:ROWS_PER_ADD], origin=self._origin)
            del self._waiting[:ROWS_PER_ADD]

    def _forget(self, now_ms: int) -> None:
        for span, kept_ms in self._kept_ms.items():
            for _ in range(PORTIONS_PER_FORGETTING):
                if not self._store.delete_tallies(span, now_ms - kept_ms):
                    break
