"""The checkpoint of a replay whose events are delivered out of order."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.domain.hours import HourCounts
from app.domain.model import Counts, Failure, UnreadableCounts

_NONE: Final[HourCounts] = {}

NO_ANSWER: Final = "none"
"""The status name of an event that got no response."""

_NO_STATUS: Final = -1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything below `offset` is delivered, a duplicate, filtered out, or listed as failed.

    `counts` covers exactly that, from the start of the replay. `failures` are the failures below
    `offset` that are not stored yet. `hours` counts by event hour what lies between the last stored
    checkpoint and this one. `statuses` counts delivered and failed events by their last HTTP
    status, see `Replay.status_counts`. `unreadable` is what was skipped below `offset`.
    """

    offset: int
    counts: Counts
    failures: tuple[Failure, ...]
    hours: Mapping[int, Counts] = field(default_factory=dict, compare=False)
    statuses: Mapping[str, int] | None = field(default=None, compare=False)
    unreadable: UnreadableCounts = field(default_factory=UnreadableCounts)


class Entry:
    """Consecutive records that are settled together and lie above the checkpoint."""

    __slots__ = (
        "delivered",
        "duplicates",
        "events",
        "failed_hours",
        "failures",
        "hours",
        "offset",
    )

    def __init__(self, offset: int, hours: HourCounts, duplicates: HourCounts) -> None:
        self.offset = offset
        self.hours = hours
        self.events = sum(hours.values())
        self.duplicates = duplicates
        self.failures: Sequence[Failure] | None = None
        """The failed events; None until the entry is settled."""
        self.failed_hours = _NONE
        self.delivered: Mapping[int, int] = {}
        """Delivered events by HTTP status."""


class _HourCounts:
    """Counts by event hour since the last stored checkpoint."""

    def __init__(self) -> None:
        # Dicts: updating a `Counter` takes microseconds, and there is one update per event.
        self._events: dict[int, int] = {}
        self._duplicates: dict[int, int] = {}
        self._failed: dict[int, int] = {}

    def add_settled(self, events: HourCounts, failed: HourCounts) -> None:
        """Count settled events, of which some failed."""
        _add(self._events, events)
        if failed:
            _add(self._failed, failed)

    def add_duplicates(self, duplicates: HourCounts) -> None:
        """Count duplicates."""
        _add(self._duplicates, duplicates)

    def counts(self) -> dict[int, Counts]:
        """The counts of each hour that has records."""
        return {hour: self._of(hour) for hour in self._events | self._duplicates}

    def _of(self, hour: int) -> Counts:
        failed = self._failed.get(hour, 0)
        delivered = self._events.get(hour, 0) - failed
        return Counts(delivered, self._duplicates.get(hour, 0), failed)

    def subtract(self, stored: Mapping[int, Counts]) -> None:
        """Subtract counts that are stored."""
        for hour, counts in stored.items():
            _subtract(self._events, hour, counts.delivered + counts.failed)
            _subtract(self._duplicates, hour, counts.duplicates)
            _subtract(self._failed, hour, counts.failed)


def _add(totals: dict[int, int], counts: Mapping[int, int]) -> None:
    for key, count in counts.items():
        totals[key] = totals.get(key, 0) + count


def _less(counts: HourCounts, subtracted: HourCounts) -> HourCounts:
    rest = dict(counts)
    for hour, count in subtracted.items():
        _subtract(rest, hour, count)
    return rest


def _by_number(statuses: Mapping[str, int]) -> dict[int, int]:
    return {
        _NO_STATUS if name == NO_ANSWER else int(name): count for name, count in statuses.items()
    }


def _by_name(statuses: Mapping[int, int]) -> dict[str, int]:
    return {
        NO_ANSWER if status == _NO_STATUS else str(status): count
        for status, count in statuses.items()
    }


def _subtract(totals: dict[int, int], hour: int, count: int) -> None:
    left = totals.get(hour, 0) - count
    if left:
        totals[hour] = left
    else:
        totals.pop(hour, None)


class DeliveryLedger:
    """Tracks the result of every record, and the offset below which all are settled.

    Entries are added in offset order and settled in any order. `position` is the offset below which
    every record was read. The checkpoint moves there when every entry is settled, so that ranges
    without records of the replay count as done.
    """

    def __init__(
        self,
        position: int,
        counts: Counts,
        statuses: Mapping[str, int] | None = None,
        unreadable: UnreadableCounts | None = None,
    ) -> None:
        """Start at `position`, with the counts of all below it; `statuses` is None if unknown."""
        self._start = position
        self._unreadable = unreadable or UnreadableCounts()
        self._unreadable_ranges: deque[tuple[int, int]] = deque()
        self._position = position
        self._offset = position
        self._delivered = counts.delivered
        self._duplicates = counts.duplicates
        self._failed = counts.failed
        self._entries: deque[Entry] = deque()
        self._failures: list[Failure] = []
        self._hours = _HourCounts()
        # If statuses are unknown for some events, none are counted: sums must match the counts.
        self._statuses = None if statuses is None else _by_number(statuses)
        self._events_above_checkpoint = 0
        self._recorded_events = counts.delivered + counts.failed

    @property
    def events_to_record(self) -> int:
        """The number of events between the last stored checkpoint and the current one."""
        return self._delivered + self._failed - self._recorded_events

    @property
    def events_above_recorded(self) -> int:
        """The number of events above the last stored checkpoint, settled or not."""
        return self._events_above_checkpoint + self.events_to_record

    def add_entry(
        self, offset: int, end: int, hours: HourCounts, duplicates: HourCounts = _NONE
    ) -> Entry:
        """Add events in `[offset, end)` to be delivered, and the duplicates between them."""
        entry = Entry(offset, hours, duplicates)
        # Otherwise events settled before `advance_position` would count above the checkpoint.
        self._position = end
        self._entries.append(entry)
        self._events_above_checkpoint += entry.events
        return entry

    def add_duplicates(self, end: int, duplicates: HourCounts) -> None:
        """Add duplicates that lie below `end` and above all entries."""
        self._position = end
        if self._entries:
            last = self._entries[-1]
            together = dict(last.duplicates)
            _add(together, duplicates)
            last.duplicates = together
        else:
            self._count_duplicates(duplicates)

    def add_unreadable(self, start: int, end: int) -> None:
        """Add a batch that was skipped, above all that were added before."""
        # After a takeover, reading starts below the checkpoint, whose counts have it.
        if start >= self._start:
            self._unreadable_ranges.append((start, end))

    def advance_position(self, position: int) -> None:
        """Declare that every record below `position` was read and added."""
        # After a takeover, reading starts below the checkpoint.
        self._position = max(self._position, position)

    def settle(
        self,
        entry: Entry,
        delivered: Mapping[int, int],
        failures: Sequence[Failure] = (),
        failed_hours: HourCounts = _NONE,
    ) -> None:
        """Settle an entry: its events are delivered, except for `failures`.

        `delivered` counts delivered events by status, `failed_hours` the failures by hour.
        """
        entry.delivered = delivered
        entry.failures = failures
        entry.failed_hours = failed_hours
        self._advance()

    def split(
        self, entry: Entry, offset: int, hours: HourCounts, duplicates: HourCounts = _NONE
    ) -> None:
        """Reduce an entry that is not settled to what it has below `offset`; leave the rest.

        `hours` and `duplicates` count that part. The rest becomes an entry of its own.
        """
        rest = Entry(offset, _less(entry.hours, hours), _less(entry.duplicates, duplicates))
        self._entries.insert(self._entries.index(entry) + 1, rest)
        entry.hours, entry.events, entry.duplicates = hours, sum(hours.values()), duplicates

    def checkpoint(self) -> Checkpoint:
        """The current checkpoint. It repeats failures and hours until `forget_recorded`."""
        self._advance()
        counts = Counts(self._delivered, self._duplicates, self._failed)
        statuses = None if self._statuses is None else _by_name(self._statuses)
        failures, hours = tuple(self._failures), self._hours.counts()
        return Checkpoint(self._offset, counts, failures, hours, statuses, self._count_unreadable())

    def forget_recorded(self, checkpoint: Checkpoint) -> None:
        """Drop the failures and hours of a checkpoint that is stored."""
        self._recorded_events = checkpoint.counts.delivered + checkpoint.counts.failed
        del self._failures[: len(checkpoint.failures)]
        self._hours.subtract(checkpoint.hours)

    def _advance(self) -> None:
        entries = self._entries
        while entries and (failures := entries[0].failures) is not None:
            self._count(entries.popleft(), failures)
        self._offset = entries[0].offset if entries else self._position

    def _count(self, entry: Entry, failures: Sequence[Failure]) -> None:
        self._events_above_checkpoint -= entry.events
        self._delivered += entry.events - len(failures)
        self._hours.add_settled(entry.hours, entry.failed_hours)
        if self._statuses is not None:
            _add(self._statuses, entry.delivered)
            for failure in failures:
                _add(self._statuses, {_NO_STATUS if failure.status is None else failure.status: 1})
        if entry.duplicates:
            self._count_duplicates(entry.duplicates)
        if failures:
            self._failed += len(failures)
            self._failures += failures

    def _count_unreadable(self) -> UnreadableCounts:
        """Return what was skipped below the checkpoint."""
        ranges = self._unreadable_ranges
        while ranges and ranges[0][1] <= self._offset:
            start, end = ranges.popleft()
            counts = self._unreadable
            self._unreadable = UnreadableCounts(counts.batches + 1, counts.offsets + end - start)
        return self._unreadable

    def _count_duplicates(self, duplicates: HourCounts) -> None:
        self._duplicates += sum(duplicates.values())
        self._hours.add_duplicates(duplicates)
