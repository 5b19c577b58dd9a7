"""The delivery queue of one replay: bounded memory, and the ledger of what is settled."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.delivery.batch import Batch, CompletedBatches
from app.delivery.queue import DeliveryQueue, StartTask
from app.domain.checkpointing import DeliveryLedger, Entry
from app.domain.hours import HourCounts, count_by_hour
from app.domain.model import Failure
from app.log.event import LoggedEvent

BYTES_MAX: Final = 8 * 2**20
"""Bytes of batches that one replay holds; a single larger batch is accepted alone."""

EVENTS_MAX: Final = 10_000
"""Events above the stored checkpoint, settled or not. An event that is retried holds the checkpoint
back while later ones are delivered, and so does a database that does not respond; this limits what
a takeover would deliver twice."""

BATCHES_PER_SENDER: Final = 2
"""So that no sender task waits for the reader, however many events a batch has."""


@dataclass(slots=True)
class BatchProgress:
    """What became of a batch so far: `parts` are its events that have no result, in order.

    `delivered` counts delivered events by status, `failures` are those that were given up.
    """

    parts: deque[list[LoggedEvent]]
    delivered: dict[int, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class QueuedBatch:
    """A batch and its entry in the ledger."""

    batch: Batch
    entry: Entry
    size_bytes: int
    deferrals: int = 0
    """How often it was put behind the others after its last attempt."""
    progress: BatchProgress | None = None
    """The result of its parts; None before the first attempt."""


class ReplayQueue:
    """Adds batches to the ledger and to the delivery queue, and settles them."""

    def __init__(
        self,
        ledger: DeliveryLedger,
        deliver: "Callable[[ReplayQueue, QueuedBatch], Awaitable[None]]",
        *,
        in_flight_max: int,
        batch_events_max: int,
        start_task: StartTask,
        request_checkpoint: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._request_checkpoint = request_checkpoint
        self._batch_events_max = batch_events_max
        self._in_flight_max = in_flight_max
        self._events_max = self._events_max_of(in_flight_max)
        self._has_changed = asyncio.Event()
        self._begun: set[QueuedBatch] = set()
        """Batches with an attempt, which are not settled."""
        self.waiting_events = 0
        """Events that are added and not settled."""
        self.deliveries = DeliveryQueue[QueuedBatch](
            lambda queued: deliver(self, queued), in_flight_max, start_task
        )

    def limit_in_flight(self, in_flight_max: int) -> None:
        """Change the number of sender tasks."""
        if in_flight_max != self._in_flight_max:
            self._in_flight_max = in_flight_max
            self._events_max = self._events_max_of(in_flight_max)
            self.deliveries.limit_in_flight(in_flight_max)

    def _events_max_of(self, in_flight_max: int) -> int:
        return max(EVENTS_MAX, BATCHES_PER_SENDER * in_flight_max * self._batch_events_max)

    async def add_batches(self, completed: CompletedBatches) -> None:
        """Add batches to the ledger and the queue; return when there was room for all of them."""
        ledger = self._ledger
        for batch in completed.batches:
            while not self._has_room(batch):
                self._has_changed.clear()
                await self._has_changed.wait()
            if batch.duplicates_before:
                ledger.add_duplicates(batch.start, batch.duplicates_before)
            entry = ledger.add_entry(batch.start, batch.end, batch.hours, batch.duplicates)
            self.waiting_events += len(batch.events)
            self.deliveries.add(QueuedBatch(batch, entry, batch.size_bytes))
        if completed.duplicates:
            ledger.add_duplicates(completed.position, completed.duplicates)
        for start, end in completed.unreadable:
            ledger.add_unreadable(start, end)
        ledger.advance_position(completed.position)

    def begin(self, queued: QueuedBatch) -> BatchProgress:
        """What is left of a batch that a sender task takes, and the result of the rest."""
        if queued.progress is None:
            queued.progress = BatchProgress(deque([queued.batch.events]))
            self._begun.add(queued)
        return queued.progress

    def settle(
        self, queued: QueuedBatch, delivered: Mapping[int, int], failures: Sequence[Failure]
    ) -> None:
        """Record the result of a batch and remove it.

        `delivered` counts its delivered events by status; `failures` are the other ones.
        """
        failed_hours = _failed_hours(failures, queued.batch) if failures else {}
        self._ledger.settle(queued.entry, delivered, failures, failed_hours)
        self._begun.discard(queued)
        self.deliveries.remove(queued)
        self.waiting_events -= len(queued.batch.events)
        self.continue_reading()

    def settle_begun(self) -> None:
        """Record the results of the first parts of batches that are not sent to the end.

        Otherwise a replay that continues later would send these parts again.
        """
        while self._begun:
            self._settle_parts(self._begun.pop())

    def _settle_parts(self, queued: QueuedBatch) -> None:
        progress, batch = queued.progress, queued.batch
        assert progress is not None
        assert progress.parts
        # Parts are sent in the order of the log.
        end = progress.parts[0][0].offset
        if end > batch.start:
            hours, duplicates = batch.hours_below(end), batch.duplicates_below(end)
            self._ledger.split(queued.entry, end, hours, duplicates)
            failures = progress.failures
            failed_hours = _failed_hours(failures, batch) if failures else {}
            self._ledger.settle(queued.entry, progress.delivered, failures, failed_hours)

    def defer(self, queued: QueuedBatch) -> None:
        """Send what is left of a batch again, after the others."""
        queued.deferrals += 1
        self.deliveries.requeue(queued, in_front=False)

    def continue_reading(self) -> None:
        """Let `add_batches` continue after a batch was settled or a checkpoint stored."""
        # Early enough that a fast replay does not wait for the next interval.
        if self._ledger.events_to_record >= self._events_max // 2:
            self._request_checkpoint()
        self._has_changed.set()

    def _has_room(self, batch: Batch) -> bool:
        size_bytes = self.deliveries.size_bytes
        if size_bytes and size_bytes + batch.size_bytes > BYTES_MAX:
            return False
        return self._ledger.events_above_recorded + len(batch.events) <= self._events_max


def _failed_hours(failures: Sequence[Failure], batch: Batch) -> HourCounts:
    """The failed events of a batch, counted by hour."""
    offsets = {failure.offset for failure in failures}
    return count_by_hour([event.timestamp_ms for event in batch.events if event.offset in offsets])
