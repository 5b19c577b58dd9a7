"""Stores the delivery statistics of the live path, and deletes old ones."""

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
"""The next write waits at least this many times as long as the last one took. So with very many
webhooks, writes take no more than a twentieth of the time."""

DELETE_S: Final = 60.0
BATCHES_PER_DELETE: Final = 100

SETTLED_KEPT_MS: Final = 3 * HOUR_MS
"""Statistics show two hours at most; the third allows for clock differences and delays."""

_LAST_S: Final = 1.0
"""How long the last write may take, so that a hanging database does not delay the exit."""


class TallyWriter:
    """Adds counts to the database every few seconds, each time on a new thread.

    Without a database the counts grow up to their limit, and nothing waits for them. A crash loses
    the counts of the last seconds. A write with unknown result is repeated and may count twice.
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
        """Drained and not known to be stored."""
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Store counts until cancelled."""
        delete_s, took_s = 0.0, 0.0
        while True:
            await asyncio.sleep(max(self._flush_s, REST * took_s))
            began_s = time.monotonic()
            try:
                await self.flush()
                if began_s >= delete_s:
                    await on_own_thread(partial(self._delete_old, time.time_ns() // 1_000_000))
                    delete_s = began_s + DELETE_S
            except StoreUnavailable as error:
                # The time until a failure says nothing about the duration of a write.
                took_s = 0.0
                _log.warning("statistics-not-stored", extra={"reason": str(error)})
            else:
                took_s = time.monotonic() - began_s

    async def finish(self) -> None:
        """Store the remaining counts within a second, or drop them."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(_LAST_S):
                await self.flush()

    async def flush(self) -> None:
        """Store the counts so far.

        Raises:
            StoreUnavailable: the database does not respond; the rest waits for the next call.
        """
        async with self._writing:
            # Not drained earlier: the counter enforces the limit.
            if self._waiting:
                await on_own_thread(partial(self._write, list))
            if self._tallies:
                await on_own_thread(partial(self._write, self._tallies.drain()))

    def _write(self, drained: Callable[[], list[CountedTally]]) -> None:
        self._waiting += drained()
        while self._waiting:
            self._store.add_tallies(self._waiting[:ROWS_PER_ADD], origin=self._origin)
            del self._waiting[:ROWS_PER_ADD]

    def _delete_old(self, now_ms: int) -> None:
        for span, kept_ms in self._kept_ms.items():
            for _ in range(BATCHES_PER_DELETE):
                if not self._store.delete_tallies(span, now_ms - kept_ms):
                    break
