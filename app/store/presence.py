"""Tells the database every few seconds that this process lives, beside its work."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Self

from app.config import Settings
from app.domain.presence import BEAT_S, Details, ProcessKind
from app.process import on_own_thread
from app.store.errors import StoreError
from app.store.store import Store

_log: Final = logging.getLogger(__name__)

_LEAVING_S: Final = 0.5
"""What the last word may take: a process that ends while the database hangs does not wait."""

_FORGET_EVERY: Final = 720
"""Beats, an hour of them, from one look for rows of the dead to the next."""


def process_name(settings: Settings) -> str:
    """What this process is called: HOST:PID."""
    return f"{settings.server}:{os.getpid()}"


class Presence:
    """Says that a process lives while its `async with` lasts, and at the end that it is gone.

    Each word has a thread of its own, one at a time: a database that hangs holds up the next word
    and nothing else. What could not be said is said with the next beat. `details` is asked for
    before each.
    """

    def __init__(
        self,
        store: Store,
        kind: ProcessKind,
        name: str,
        origin: str,
        details: Callable[[], Details] = dict,
        beat_s: float = BEAT_S,
    ) -> None:
        self._store = store
        self._kind = kind
        self._name = name
        self._origin = origin
        self._details = details
        self._beat_s = beat_s
        self._started_ms = time.time_ns() // 1_000_000
        self._beats = 0
        self._ending = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._telling = asyncio.create_task(self._run())
        self._telling.add_done_callback(_ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._telling is not None
        self._ending.set()
        await asyncio.wait([self._telling], timeout=_LEAVING_S)
        self._telling.cancel()

    async def _run(self) -> None:
        while not self._ending.is_set():
            await self._tell(partial(self._beat, self._details()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._beat_s)
        if self._beats:
            await self._tell(lambda: self._store.leave(self._kind, self._name))

    async def _tell(self, word: Callable[[], None]) -> None:
        try:
            await on_own_thread(word)
        except StoreError as error:
            _log.warning("presence-not-told", extra={"reason": str(error)})

    def _beat(self, details: Details) -> None:
        if not self._beats:
            # Where its table is not there yet, the database would say so in a way of its own.
            self._store.check()
        if self._beats % _FORGET_EVERY == 0:
            self._store.forget_silent_processes()
        self._store.be_present(self._kind, self._name, self._origin, self._started_ms, details)
        self._beats += 1


def _ended(telling: "asyncio.Task[None]") -> None:
    # Nobody's work is to end for it; who operates this is to hear of it.
    if not telling.cancelled() and (error := telling.exception()) is not None:
        _log.error("presence-ended-badly", exc_info=error)
