"""The source of a replay's deliveries: a range of the log, filtered and deduplicated."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.delivery.batch import BatchBuilder, CompletedBatches
from app.domain.dedupe import SeenHashes, event_digest
from app.domain.turns import ReplayActivity
from app.log.reader import FetchedEvents, ReplayReader
from app.replay_workers.queue import ReplayQueue
from app.replay_workers.selection import GAP_RECORDS_MIN, Selection

PARTIAL_BATCH_S_MAX: Final = 0.2
"""How long a partial batch waits for more events."""


class ReplaySource:
    """Reads a range of the log on its own thread, which reads ahead within bounds.

    Events below `resume_at` were settled before a takeover. They are only remembered, so that a
    later copy is detected as a duplicate. The first events do not wait for the search for the gap.
    """

    def __init__(
        self,
        reader: ReplayReader,
        selection: Selection,
        seen: SeenHashes,
        builder: BatchBuilder,
        *,
        resume_at: int,
        activity: ReplayActivity,
    ) -> None:
        self._reader = reader
        self._selection = selection
        self._seen = seen
        self._builder = builder
        self._resume_at = resume_at
        self._activity = activity
        self._partial_since_s: float | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-reader")

    async def run(self, queue: ReplayQueue) -> None:
        """Read the whole range into the queue, then close the queue.

        Raises:
            HistoryLost: see `ReplayReader.read`.
            LogUnavailable: see `ReplayReader.read`.
        """
        loop = asyncio.get_running_loop()
        finding_gap = asyncio.ensure_future(self._selection.find_gap())
        # The gap does not end below, unless the replay resumes in it.
        find_below = self._reader.position + GAP_RECORDS_MIN
        try:
            while not self._reader.is_done:
                if finding_gap.done() or self._reader.position >= find_below:
                    self._reader.gap = await finding_gap
                self._activity.start_reading(time.monotonic())
                completed = await loop.run_in_executor(self._thread, self._read)
                self._activity.stop_reading(time.monotonic())
                if completed.position > self._resume_at:
                    self._activity.begin_turn(time.monotonic())
                await queue.add_batches(completed)
            queue.deliveries.close()
        finally:
            finding_gap.cancel()
            # After a read in progress, and without waiting for it.
            self._thread.submit(self._reader.close)
            self._thread.shutdown(wait=False)

    def _read(self) -> CompletedBatches:
        """Read on. All work per event is done here, on the thread."""
        passage = self._reader.read()
        self._add(passage)
        if self._is_partial_batch_due(passage):
            self._builder.complete_batch()
        completed = self._builder.take_completed(passage.position)
        if not passage.unreadable:
            return completed
        return completed._replace(unreadable=[each[2:4] for each in passage.unreadable])

    def _add(self, passage: FetchedEvents) -> None:
        selection, builder, add = self._selection, self._builder, self._seen.add
        for event in passage.events:
            if not selection.includes(event):
                continue
            is_new = add(event_digest(event.event_id, event.value))
            if event.offset < self._resume_at:
                continue
            if not is_new:
                builder.add_duplicate(event)
            elif not selection.is_delivered(event):
                builder.add_event(event)

    def _is_partial_batch_due(self, passage: FetchedEvents) -> bool:
        if not self._builder.has_partial_batch:
            self._partial_since_s = None
            return False
        now_s = time.monotonic()
        if self._partial_since_s is None:
            self._partial_since_s = now_s
        has_waited = now_s - self._partial_since_s >= PARTIAL_BATCH_S_MAX
        return has_waited or not passage.events or self._reader.is_done
