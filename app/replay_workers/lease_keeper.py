"""Extends the lease of one replay by heartbeats, and knows whether the lease is held."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from app.domain.model import Lease
from app.replay_workers.errors import LeaseLost
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

HEARTBEAT_S_MAX: Final = 1.0
"""The longest pause between heartbeats, however long the lease: a heartbeat's answer also says that
the replay was paused or cancelled, which must take effect within two seconds."""

_STORE_RETRY_S: Final = 1.0

T = TypeVar("T")

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock_s() -> float:
    """Seconds since boot. Unlike the monotonic clock, it runs while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


class LeaseKeeper:
    """The worker's view of a lease, which always expires before the database's view.

    The lease is held until `lease_s` after the last successful heartbeat was *sent*; the database
    counts from when it received the heartbeat. So a process that was suspended or lost its database
    finds its lease expired before another worker can claim the replay.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        lease_s: float,
        heartbeat_s: float,
        sent_s: float,
        clock: Callable[[], float] = boot_clock_s,
        count_heartbeat: Callable[[bool], None] = lambda _is_sent: None,
    ) -> None:
        """Start with a claim that was sent at `sent_s` by `clock`."""
        self._store = store
        self._lease = lease
        self._lease_s = lease_s
        self._pause_s = min(heartbeat_s, HEARTBEAT_S_MAX)
        self._clock = clock
        self._count_heartbeat = count_heartbeat
        self._deadline_s = sent_s + lease_s
        self._renewed = asyncio.Event()

    def is_held(self) -> bool:
        """Whether no other worker can have the replay."""
        return self._clock() < self._deadline_s

    async def wait_until_held(self) -> None:
        """Return at once if the lease is held, else after a heartbeat has renewed it."""
        while not self.is_held():
            self._renewed.clear()
            await self._renewed.wait()

    async def write(self, change: Callable[[Store, Lease], bool]) -> None:
        """Write under the lease; retry until the database responds.

        Raises:
            LeaseLost: the replay was taken over, paused or cancelled.
        """
        if not await self.query(lambda store: change(store, self._lease)):
            raise LeaseLost

    async def query(self, operation: Callable[[Store], T]) -> T:
        """The result of an operation on the store; retry until the database responds."""
        while True:
            try:
                return await _run_to_completion(lambda: operation(self._store))
            except StoreUnavailable as error:
                _log.warning("store-unavailable", extra=self._fields(error))
                await asyncio.sleep(_STORE_RETRY_S)

    async def run(self) -> None:
        """Send heartbeats until cancelled.

        Raises:
            LeaseLost: the replay was taken over, paused or cancelled.
        """
        while True:
            await asyncio.sleep(self._pause_s)
            await self.send_heartbeat()

    async def send_heartbeat(self) -> None:
        """Send one heartbeat; if the database does not respond, the next one is the retry.

        Raises:
            LeaseLost: the replay was taken over, paused or cancelled.
        """
        sent_s = self._clock()
        try:
            is_held = await asyncio.to_thread(self._store.heartbeat, self._lease, self._lease_s)
        except StoreUnavailable as error:
            self._count_heartbeat(False)
            _log.warning("heartbeat-failed", extra=self._fields(error))
            return
        self._count_heartbeat(True)
        if not is_held:
            raise LeaseLost
        self._deadline_s = sent_s + self._lease_s
        self._renewed.set()

    def _fields(self, error: StoreUnavailable) -> dict[str, str]:
        return {"replay": self._lease.replay_id, "reason": str(error)}


async def _run_to_completion(operation: Callable[[], T]) -> T:
    """The result of `operation`, run on a thread; a cancellation takes effect after its end.

    Otherwise the thread would continue, and an old checkpoint could be stored after the last one.
    """
    running = asyncio.create_task(asyncio.to_thread(operation))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # retrieved, so that asyncio does not log it
        raise
