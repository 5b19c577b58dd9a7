"""Keeps the lease of one replay, and knows at every moment whether it still holds."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from app.replay.model import Lease
from app.replay_workers.errors import LeaseLost
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

NOTICE_S: Final = 2.0
"""A cancelled replay stops within this time, however rarely its lease needs a heartbeat."""

_STORE_RETRY_S: Final = 1.0

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock_s() -> float:
    """Seconds since boot; unlike the monotonic clock it goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class LeaseKeeper:
    """The lease as seen from here, which is never longer than the database's view of it.

    It holds until `lease_s` after the last successful heartbeat was *sent*: the database begins
    to count later, when it has the heartbeat. A process that was stopped, or that lost its
    database, so finds its lease ended by itself, before another worker can have taken it.
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
    ) -> None:
        """Begin with a claim that was sent at `sent_s` by `clock`."""
        self._store = store
        self._lease = lease
        self._lease_s = lease_s
        self._pause_s = min(heartbeat_s, NOTICE_S)
        self._clock = clock
        self._deadline_s = sent_s + lease_s
        self._renewed = asyncio.Event()

    def is_held(self) -> bool:
        """Whether nobody else can have the replay now."""
        return self._clock() < self._deadline_s

    async def until_held(self) -> None:
        """Return at once while the lease holds, or when a heartbeat has renewed it."""
        while not self.is_held():
            self._renewed.clear()
            await self._renewed.wait()

    async def write(self, change: Callable[[Store, Lease], bool]) -> None:
        """Make a change under the lease, as often as it takes until the database answers.

        Raises:
            LeaseLost: the database says that the lease is gone.
        """
        while True:
            try:
                is_held = await _to_its_end(lambda: change(self._store, self._lease))
            except StoreUnavailable as error:
                _log.warning("not-stored-yet", extra=self._what(error))
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                break
        if not is_held:
            raise LeaseLost

    async def run(self) -> None:
        """Send heartbeats until cancelled.

        Raises:
            LeaseLost: the database says that the lease is gone.
        """
        while True:
            await asyncio.sleep(self._pause_s)
            await self.beat()

    async def beat(self) -> None:
        """Send one heartbeat; a database that does not answer is asked again next time.

        Raises:
            LeaseLost: the database says that the lease is gone.
        """
        sent_s = self._clock()
        try:
            is_held = await asyncio.to_thread(self._store.heartbeat, self._lease, self._lease_s)
        except StoreUnavailable as error:
            _log.warning("no-heartbeat", extra=self._what(error))
            return
        if not is_held:
            raise LeaseLost
        self._deadline_s = sent_s + self._lease_s
        self._renewed.set()

    def _what(self, error: StoreUnavailable) -> dict[str, str]:
        return {"replay": self._lease.replay_id, "reason": str(error)}


async def _to_its_end(change: Callable[[], bool]) -> bool:
    """The answer of `change`, which runs on a thread; a cancel takes effect once it has ended.

    Left to itself, the thread would go on, and an old checkpoint could come after the last one.
    """
    running = asyncio.create_task(asyncio.to_thread(change))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # its failure interests nobody any more
        raise
