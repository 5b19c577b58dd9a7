"""Brings the events of a replay from the log to its couriers, each of them once."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.log.event import LoggedEvent
from app.log.reader import Passage, ReplayReader
from app.replay.dedupe import SeenHashes, event_digest
from app.replay_workers.courier import Parcel, Route

AHEAD_MAX: Final = 10_000
"""Records settled or open above the checkpoint. One event that is retried holds the checkpoint
back while later ones go on; this bounds what a take-over would then deliver twice."""

_ROOM_CHECK_S: Final = 0.05


class Intake:
    """Reads a range of the log on a thread of its own, which reads ahead within bounds.

    Events below `resume_at` were dealt with before a take-over: they are remembered, so that a
    later copy is known as one, and not delivered.
    """

    def __init__(
        self,
        reader: ReplayReader,
        route: Route,
        seen: SeenHashes,
        *,
        resume_at: int,
        couriers: int,
    ) -> None:
        self._reader = reader
        self._couriers = couriers
        self._route = route
        self._seen = seen
        self._resume_at = resume_at
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-reader")

    async def run(self) -> None:
        """Read the whole range, and tell every courier when it has its last event.

        Raises:
            HistoryLost: see `ReplayReader.read`.
            LogUnavailable: see `ReplayReader.read`.
        """
        loop = asyncio.get_running_loop()
        try:
            while not self._reader.is_done:
                await self._take(await loop.run_in_executor(self._thread, self._reader.read))
            for _ in range(self._couriers):
                await self._route.parcels.put(None)
        finally:
            # After the read that may be under way, and without waiting for it.
            self._thread.submit(self._reader.close)
            self._thread.shutdown(wait=False)

    async def _take(self, passage: Passage) -> None:
        for event in passage.events:
            await self._take_event(event)
        if passage.position > self._resume_at:
            self._route.ledger.read_to(passage.position)
        while self._route.ledger.ahead > AHEAD_MAX:  # noqa: ASYNC110  rare, and couriers stay lean
            await asyncio.sleep(_ROOM_CHECK_S)

    async def _take_event(self, event: LoggedEvent) -> None:
        is_new = self._seen.add(event_digest(event.event_id, event.value))
        if event.offset < self._resume_at:
            return
        if is_new:
            entry = self._route.ledger.open(event.offset)
            await self._route.parcels.put(Parcel(entry, event))
        else:
            self._route.ledger.duplicate(event.offset)
