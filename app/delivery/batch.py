"""Delivery batches: consecutive events that one request sends."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from app.domain.hours import HourCounts, count_by_hour
from app.log.event import LoggedEvent

BATCH_BYTES_MAX: Final = 2**20
"""Bytes of a batch of several events; a single event may be larger."""


class Batch(NamedTuple):
    """Events in the order of the log. `hours` counts them by the hour of their event time.

    `duplicates_before` lie between the previous batch and this one; `duplicate_places` has offset
    and time of each duplicate between the first event and `end`. `end` is the offset after the last
    event or duplicate.
    """

    events: list[LoggedEvent]
    hours: HourCounts
    size_bytes: int
    end: int
    duplicates_before: HourCounts
    duplicate_places: Sequence[tuple[int, int]]

    @property
    def start(self) -> int:
        """The offset of the first event."""
        return self.events[0].offset

    @property
    def duplicates(self) -> HourCounts:
        """Its duplicates, by hour."""
        return self.duplicates_below(self.end)

    def hours_below(self, offset: int) -> HourCounts:
        """Its events below an offset, by hour."""
        return count_by_hour([each.timestamp_ms for each in self.events if each.offset < offset])

    def duplicates_below(self, offset: int) -> HourCounts:
        """Its duplicates below an offset, by hour."""
        return count_by_hour([time_ms for at, time_ms in self.duplicate_places if at < offset])


class CompletedBatches(NamedTuple):
    """Batches completed since the previous call of `take_completed`.

    `duplicates` follow the last batch. Every record below `position` is in a batch, a duplicate,
    or not selected. `unreadable` are offsets `(start, end)` of the log that were skipped.
    """

    batches: list[Batch]
    duplicates: HourCounts
    position: int
    unreadable: Sequence[tuple[int, int]] = ()


class BatchBuilder:
    """Groups events into batches of up to `events_max`."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._completed: list[Batch] = []
        self._duplicates_before: list[int] = []
        self._start_batch()

    @property
    def has_partial_batch(self) -> bool:
        """Whether the current batch has events and room for more."""
        return bool(self._events)

    def add_event(self, event: LoggedEvent) -> None:
        """Add the next event."""
        size_bytes = len(event.value) + 1  # and a comma
        if self._events and self._size_bytes + size_bytes > BATCH_BYTES_MAX:
            self.complete_batch()
        self._events.append(event)
        self._size_bytes += size_bytes
        self._end = event.offset + 1
        if len(self._events) >= self._events_max:
            self.complete_batch()

    def add_duplicate(self, event: LoggedEvent) -> None:
        """Count the next event as a duplicate."""
        if self._events:
            self._duplicates.append((event.offset, event.timestamp_ms))
            self._end = event.offset + 1
        else:
            self._duplicates_before.append(event.timestamp_ms)

    def complete_batch(self) -> None:
        """Complete the current batch, if it has events."""
        if self._events:
            batch = Batch(
                self._events,
                count_by_hour([event.timestamp_ms for event in self._events]),
                self._size_bytes,
                self._end,
                count_by_hour(self._duplicates_before),
                self._duplicates,
            )
            self._completed.append(batch)
            self._duplicates_before = []
            self._start_batch()

    def take_completed(self, position: int) -> CompletedBatches:
        """The completed batches; every record below `position` must have been added."""
        completed, self._completed = self._completed, []
        # Duplicates before a partial batch lie below the returned position, too.
        duplicates, self._duplicates_before = count_by_hour(self._duplicates_before), []
        position = self._events[0].offset if self._events else position
        return CompletedBatches(completed, duplicates, position)

    def _start_batch(self) -> None:
        self._events: list[LoggedEvent] = []
        self._size_bytes = 0
        self._duplicates: list[tuple[int, int]] = []
        self._end = 0
