"""How far a replay is when its events are delivered out of order."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.domain.hours import Tally
from app.domain.model import Counts, Failure

_NONE: Final[Tally] = {}

NO_ANSWER: Final = "none"
"""What stands for the status of an event that was not answered."""

_NO_STATUS: Final = -1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything below `offset` is delivered, a duplicate, not wanted, or listed as failed.

    `counts` counts exactly that, from the start of the replay; `failures` are those below
    `offset` that no earlier checkpoint has handed over. `hours` counts what lies between the
    last checkpoint on record and this one, by the hour of the events' time. `statuses` tells what
    the events that `counts` has as delivered or failed were answered with: see `Replay`.
    """

    offset: int
    counts: Counts
    failures: tuple[Failure, ...]
    hours: Mapping[int, Counts] = field(default_factory=dict, compare=False)
    statuses: Mapping[str, int] | None = field(default=None, compare=False)


class Entry:
    """Some records that are settled together, until the checkpoint has passed them."""

    __slots__ = (
        "delivered",
        "duplicates",
        "events",
        "failed_hours",
        "failures",
        "hours",
        "offset",
    )

    def __init__(self, offset: int, hours: Tally, duplicates: Tally) -> None:
        self.offset = offset
        self.hours = hours
        self.events = sum(hours.values())
        self.duplicates = duplicates
        self.failures: Sequence[Failure] | None = None
        """Those of the events that were given up; None while the entry is open."""
        self.failed_hours = _NONE
        self.delivered: Mapping[int, int] = {}
        """How many of the events were answered with each status of a delivery."""


class _HourBook:
    """What was settled since the last checkpoint on record, by the hour of the events' time."""

    def __init__(self) -> None:
        # Plain ones: a `Counter` takes microseconds for each update, and there is one an event.
        self._events: dict[int, int] = {}
        self._duplicates: dict[int, int] = {}
        self._failed: dict[int, int] = {}

    def settled(self, events: Tally, failed: Tally) -> None:
        """Count events, of which some were given up."""
        _add(self._events, events)
        if failed:
            _add(self._failed, failed)

    def duplicates(self, duplicates: Tally) -> None:
        """Count duplicates."""
        _add(self._duplicates, duplicates)

    def counts(self) -> dict[int, Counts]:
        """The counts of each hour that has any."""
        return {hour: self._of(hour) for hour in self._events | self._duplicates}

    def _of(self, hour: int) -> Counts:
        failed = self._failed.get(hour, 0)
        delivered = self._events.get(hour, 0) - failed
        return Counts(delivered, self._duplicates.get(hour, 0), failed)

    def forget(self, counted: Mapping[int, Counts]) -> None:
        """Take off what is on record."""
        for hour, counts in counted.items():
            _take_off(self._events, hour, counts.delivered + counts.failed)
            _take_off(self._duplicates, hour, counts.duplicates)
            _take_off(self._failed, hour, counts.failed)


def _add(book: dict[int, int], counts: Mapping[int, int]) -> None:
    for key, count in counts.items():
        book[key] = book.get(key, 0) + count


def _by_number(statuses: Mapping[str, int]) -> dict[int, int]:
    return {
        _NO_STATUS if name == NO_ANSWER else int(name): count for name, count in statuses.items()
    }


def _by_name(statuses: Mapping[int, int]) -> dict[str, int]:
    return {
        NO_ANSWER if status == _NO_STATUS else str(status): count
        for status, count in statuses.items()
    }


def _take_off(book: dict[int, int], hour: int, count: int) -> None:
    left = book.get(hour, 0) - count
    if left:
        book[hour] = left
    else:
        book.pop(hour, None)


class DeliveryLedger:
    """Books what became of every record, and tells the offset below which nothing is open.

    Records are booked in the order of their offsets, each with all that matter below it, and
    settled in any. `position` is the offset below which all records were read; `checkpoint` goes
    there when nothing is open, so that stretches without a record of the replay count as done.
    """

    def __init__(
        self, position: int, counts: Counts, statuses: Mapping[str, int] | None = None
    ) -> None:
        """Begin where `counts` and `statuses` count all below; None where these are not known."""
        self._position = position
        self._offset = position
        self._delivered = counts.delivered
        self._duplicates = counts.duplicates
        self._failed = counts.failed
        self._entries: deque[Entry] = deque()
        self._failures: list[Failure] = []
        self._hours = _HourBook()
        # What was not noted for some can be told for none: the sum would not be that of the counts.
        self._statuses = None if statuses is None else _by_number(statuses)
        self.ahead = 0
        """How many events are booked beyond the checkpoint, settled or not."""

    def open(self, offset: int, end: int, hours: Tally, duplicates: Tally = _NONE) -> Entry:
        """Book events in `[offset, end)` that are to be delivered, and duplicates among them."""
        entry = Entry(offset, hours, duplicates)
        # Else events that are settled before `read_to` would count, yet lie above the checkpoint.
        self._position = end
        self._entries.append(entry)
        self.ahead += entry.events
        return entry

    def duplicate(self, end: int, duplicates: Tally) -> None:
        """Book records below `end`, above all that is booked, that need no delivery."""
        self._position = end
        if self._entries:
            last = self._entries[-1]
            together = dict(last.duplicates)
            _add(together, duplicates)
            last.duplicates = together
        else:
            self._count_duplicates(duplicates)

    def read_to(self, position: int) -> None:
        """Book that every record below `position` was read, and each that matters is booked."""
        # After a take-over, reading begins below what was done before.
        self._position = max(self._position, position)

    def settle(
        self,
        entry: Entry,
        delivered: Mapping[int, int],
        failures: Sequence[Failure] = (),
        failed_hours: Tally = _NONE,
    ) -> None:
        """Book that the events of an entry are done with: delivered, but for `failures`.

        `delivered` tells how many were answered with each status; `failed_hours` how many of the
        failures are of each hour.
        """
        entry.delivered = delivered
        entry.failures = failures
        entry.failed_hours = failed_hours
        self._advance()

    def checkpoint(self) -> Checkpoint:
        """How far everything is settled.

        Its failures and its hours come again until `recorded` is called.
        """
        self._advance()
        counts = Counts(self._delivered, self._duplicates, self._failed)
        statuses = None if self._statuses is None else _by_name(self._statuses)
        failures, hours = tuple(self._failures), self._hours.counts()
        return Checkpoint(self._offset, counts, failures, hours, statuses)

    def recorded(self, checkpoint: Checkpoint) -> None:
        """Forget the failures and the hours of a checkpoint that is on record."""
        del self._failures[: len(checkpoint.failures)]
        self._hours.forget(checkpoint.hours)

    def _advance(self) -> None:
        entries = self._entries
        while entries and (failures := entries[0].failures) is not None:
            self._count(entries.popleft(), failures)
        self._offset = entries[0].offset if entries else self._position

    def _count(self, entry: Entry, failures: Sequence[Failure]) -> None:
        self.ahead -= entry.events
        self._delivered += entry.events - len(failures)
        self._hours.settled(entry.hours, entry.failed_hours)
        if self._statuses is not None:
            _add(self._statuses, entry.delivered)
            for failure in failures:
                _add(self._statuses, {_NO_STATUS if failure.status is None else failure.status: 1})
        if entry.duplicates:
            self._count_duplicates(entry.duplicates)
        if failures:
            self._failed += len(failures)
            self._failures += failures

    def _count_duplicates(self, duplicates: Tally) -> None:
        self._duplicates += sum(duplicates.values())
        self._hours.duplicates(duplicates)
