"""How far a replay is when its events are delivered out of order."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from app.replay.model import Counts, Failure


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything below `offset` is delivered, a duplicate, not wanted, or listed as failed.

    `counts` counts exactly that, from the start of the replay; `failures` are those below
    `offset` that no earlier checkpoint has handed over.
    """

    offset: int
    counts: Counts
    failures: tuple[Failure, ...]


class Entry:
    """Some records that are settled together, until the checkpoint has passed them."""

    __slots__ = ("duplicates", "events", "failures", "offset")

    def __init__(self, offset: int, events: int, duplicates: int) -> None:
        self.offset = offset
        self.events = events
        self.duplicates = duplicates
        self.failures: Sequence[Failure] | None = None
        """Those of the events that were given up; None while the entry is open."""


class DeliveryLedger:
    """Books what became of every record, and tells the offset below which nothing is open.

    Records are booked in the order of their offsets, each with all that matter below it, and
    settled in any. `position` is the offset below which all records were read; `checkpoint` goes
    there when nothing is open, so that stretches without a record of the replay count as done.
    """

    def __init__(self, position: int, counts: Counts) -> None:
        self._position = position
        self._offset = position
        self._delivered = counts.delivered
        self._duplicates = counts.duplicates
        self._failed = counts.failed
        self._entries: deque[Entry] = deque()
        self._failures: list[Failure] = []
        self.ahead = 0
        """How many events are booked beyond the checkpoint, settled or not."""

    def open(self, offset: int, end: int, events: int = 1, duplicates: int = 0) -> Entry:
        """Book events in `[offset, end)` that are to be delivered, and duplicates among them."""
        entry = Entry(offset, events, duplicates)
        # Else events that are settled before `read_to` would count, yet lie above the checkpoint.
        self._position = end
        self._entries.append(entry)
        self.ahead += events
        return entry

    def duplicate(self, end: int, count: int = 1) -> None:
        """Book records below `end`, above all that is booked, that need no delivery."""
        self._position = end
        if self._entries:
            self._entries[-1].duplicates += count
        else:
            self._duplicates += count

    def read_to(self, position: int) -> None:
        """Book that every record below `position` was read, and each that matters is booked."""
        # After a take-over, reading begins below what was done before.
        self._position = max(self._position, position)

    def settle(self, entry: Entry, failures: Sequence[Failure] = ()) -> None:
        """Book that the events of an entry are done with: delivered, but for `failures`."""
        entry.failures = failures
        self._advance()

    def checkpoint(self) -> Checkpoint:
        """How far everything is settled. Its failures come again until `recorded` is called."""
        self._advance()
        counts = Counts(self._delivered, self._duplicates, self._failed)
        return Checkpoint(self._offset, counts, tuple(self._failures))

    def recorded(self, checkpoint: Checkpoint) -> None:
        """Forget the failures of a checkpoint that is on record."""
        del self._failures[: len(checkpoint.failures)]

    def _advance(self) -> None:
        entries = self._entries
        while entries and (failures := entries[0].failures) is not None:
            self._count(entries.popleft(), failures)
        self._offset = entries[0].offset if entries else self._position

    def _count(self, entry: Entry, failures: Sequence[Failure]) -> None:
        self.ahead -= entry.events
        self._delivered += entry.events - len(failures)
        self._duplicates += entry.duplicates
        if failures:
            self._failed += len(failures)
            self._failures += failures
