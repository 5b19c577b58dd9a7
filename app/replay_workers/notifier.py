"""Sends notices that are due, without delaying the replays."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from app.config import Settings
from app.process import until_next_tick
from app.store import StoreUnavailable

CONCURRENT_MAX: Final = 8

_STORE_RETRY_S: Final = 2.0

Send = Callable[[], Awaitable[None]]
"""Sends a claimed notice once, and records the outcome."""


class Outbox(Protocol):
    """Notices that are due, of one kind."""

    async def claim(self, lease_s: float) -> Send | None:
        """Claim a notice for `lease_s`; None if none is due.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        ...


class Notifier:
    """Claims notices of an outbox that are due and sends each once per claim."""

    def __init__(self, outbox: Outbox, settings: Settings, poll_interval_s: float) -> None:
        self._outbox = outbox
        self._lease_s = settings.lease_s + settings.delivery_timeout_s
        self._poll_interval_s = poll_interval_s
        self._sending: set[asyncio.Task[None]] = set()
        self._is_finishing = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Poll now. For the event loop's thread."""
        self._wake.set()

    async def run(self) -> None:
        """Send notices until `finish` is called."""
        async with asyncio.TaskGroup() as group:
            while not self._is_finishing:
                self._wake.clear()
                send = await self._claim() if len(self._sending) < CONCURRENT_MAX else None
                if send is None:
                    with suppress(TimeoutError):
                        pause_s = until_next_tick(self._poll_interval_s)
                        await asyncio.wait_for(self._wake.wait(), pause_s)
                    continue
                task = group.create_task(_send(send))
                self._sending.add(task)
                task.add_done_callback(self._remove)

    async def finish(self, timeout_s: float) -> None:
        """Claim no more notices, and wait up to `timeout_s` for those in flight."""
        self._is_finishing = True
        if self._sending:
            await asyncio.wait(self._sending, timeout=timeout_s)

    def _remove(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        self.wake()  # a slot is free

    async def _claim(self) -> Send | None:
        try:
            return await self._outbox.claim(self._lease_s)
        except StoreUnavailable:
            # The worker, which claims replays, logs it.
            await asyncio.sleep(_STORE_RETRY_S)
            return None


async def _send(send: Send) -> None:
    # If the store does not respond, the notice is claimed and sent again.
    with suppress(StoreUnavailable):
        await send()
