"""Brings the events of a replay from the log to its couriers, each of them once."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.domain.dedupe import SeenHashes, event_digest
from app.log.reader import Passage, ReplayReader
from app.replay_workers.backlog import Backlog
from app.replay_workers.packing import Packed, Packer
from app.replay_workers.selection import Selection

FILLING_S_MAX: Final = 0.2
"""How long a parcel that is begun waits for more events."""


class Intake:
    """Reads a range of the log on a thread of its own, which reads ahead within bounds.

    Events below `resume_at` were dealt with before a take-over: they are remembered, so that a
    later copy is known as one, and not delivered.
    """

    def __init__(
        self,
        reader: ReplayReader,
        selection: Selection,
        seen: SeenHashes,
        packer: Packer,
        *,
        resume_at: int,
    ) -> None:
        self._reader = reader
        self._selection = selection
        self._seen = seen
        self._packer = packer
        self._resume_at = resume_at
        self._filling_since_s: float | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-reader")

    async def run(self, backlog: Backlog) -> None:
        """Read the whole range, and say when all is read.

        Raises:
            HistoryLost: see `ReplayReader.read`.
            LogUnavailable: see `ReplayReader.read`.
        """
        loop = asyncio.get_running_loop()
        try:
            while not self._reader.is_done:
                await backlog.take_in(await loop.run_in_executor(self._thread, self._load))
            backlog.end()
        finally:
            # After the read that may be under way, and without waiting for it.
            self._thread.submit(self._reader.close)
            self._thread.shutdown(wait=False)

    def _load(self) -> Packed:
        """Read on; everything that costs time for each event is done here, on the thread."""
        passage = self._reader.read()
        self._pack(passage)
        if self._must_close(passage):
            self._packer.close()
        return self._packer.take(passage.position)

    def _pack(self, passage: Passage) -> None:
        selection, packer, add = self._selection, self._packer, self._seen.add
        for event in passage.events:
            if not selection.concerns(event):
                continue
            is_new = add(event_digest(event.event_id, event.value))
            if event.offset < self._resume_at:
                continue
            if not is_new:
                packer.duplicate(event)
            elif selection.is_missing(event):
                packer.add(event)

    def _must_close(self, passage: Passage) -> bool:
        if not self._packer.is_filling:
            self._filling_since_s = None
            return False
        now_s = time.monotonic()
        if self._filling_since_s is None:
            self._filling_since_s = now_s
        has_waited = now_s - self._filling_since_s >= FILLING_S_MAX
        return has_waited or not passage.events or self._reader.is_done
