"""Keeps the lease of one replay, and knows at every moment whether it still holds."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from app.domain.model import Lease
from app.replay_workers.errors import LeaseLost
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

NOTICE_S: Final = 1.0
"""The longest pause between heartbeats, however rarely the lease needs one: by the next one a
worker learns that its replay was paused or cancelled, and two seconds are what that may take."""

_STORE_RETRY_S: Final = 1.0

T = TypeVar("T")

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
        note_heartbeat: Callable[[bool], None] = lambda _is_taken: None,
    ) -> None:
        """Begin with a claim that was sent at `sent_s` by `clock`."""
        self._store = store
        self._lease = lease
        self._lease_s = lease_s
        self._pause_s = min(heartbeat_s, NOTICE_S)
        self._clock = clock
        self._note_heartbeat = note_heartbeat
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
        if not await self.ask(lambda store: change(store, self._lease)):
            self._lose()

    async def ask(self, question: Callable[[Store], T]) -> T:
        """What the store says, asked as often as it takes until the database answers."""
        while True:
            try:
                return await _to_its_end(lambda: question(self._store))
            except StoreUnavailable as error:
                _log.warning("no-answer-yet", extra=self._what(error))
                await asyncio.sleep(_STORE_RETRY_S)

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
            self._note_heartbeat(False)
            _log.warning("no-heartbeat", extra=self._what(error))
            return
        self._note_heartbeat(True)
        if not is_held:
            self._lose()
        self._deadline_s = sent_s + self._lease_s
        self._renewed.set()

    def _lose(self) -> NoReturn:
        self._deadline_s = -math.inf
        raise LeaseLost

    def _what(self, error: StoreUnavailable) -> dict[str, str]:
        return {"replay": self._lease.replay_id, "reason": str(error)}


async def _to_its_end(change: Callable[[], T]) -> T:
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
