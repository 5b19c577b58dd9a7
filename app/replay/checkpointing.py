"""How far a replay is when its events are delivered out of order."""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from app.replay.model import Counts, Failure


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything below `offset` is delivered, a duplicate, or listed as failed.

    `counts` counts exactly that, from the start of the replay; `failures` are those below
    `offset` that no earlier checkpoint has handed over.
    """

    offset: int
    counts: Counts
    failures: tuple[Failure, ...]


class Settled(Enum):
    """Ways for a record to be done with that need no words."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"


class Entry:
    """One record from when it is read until the checkpoint has passed it."""

    __slots__ = ("offset", "outcome")

    def __init__(self, offset: int, outcome: Failure | Settled | None) -> None:
        self.offset = offset
        self.outcome = outcome


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

    @property
    def ahead(self) -> int:
        """How many records are booked beyond the checkpoint, settled or not."""
        return len(self._entries)

    def open(self, offset: int) -> Entry:
        """Book a record that is to be delivered."""
        return self._book(Entry(offset, None))

    def duplicate(self, offset: int) -> None:
        """Book a record that needs no delivery."""
        self._book(Entry(offset, Settled.DUPLICATE))

    def read_to(self, position: int) -> None:
        """Book that every record below `position` was read, and each that matters is booked."""
        self._position = position

    def deliver(self, entry: Entry) -> None:
        """Settle a record: the receiver took it."""
        entry.outcome = Settled.DELIVERED
        self._advance()

    def fail(self, entry: Entry, failure: Failure) -> None:
        """Settle a record: it was given up."""
        entry.outcome = failure
        self._advance()

    def checkpoint(self) -> Checkpoint:
        """How far everything is settled. Its failures come again until `recorded` is called."""
        self._advance()
        counts = Counts(self._delivered, self._duplicates, self._failed)
        return Checkpoint(self._offset, counts, tuple(self._failures))

    def recorded(self, checkpoint: Checkpoint) -> None:
        """Forget the failures of a checkpoint that is on record."""
        del self._failures[: len(checkpoint.failures)]

    def _book(self, entry: Entry) -> Entry:
        # Else a record that is settled before `read_to` would count, yet lie above the checkpoint.
        self._position = entry.offset + 1
        self._entries.append(entry)
        return entry

    def _advance(self) -> None:
        entries = self._entries
        while entries and entries[0].outcome is not None:
            self._count(entries.popleft().outcome)
        self._offset = entries[0].offset if entries else self._position

    def _count(self, outcome: Failure | Settled | None) -> None:
        if outcome is Settled.DELIVERED:
            self._delivered += 1
        elif outcome is Settled.DUPLICATE:
            self._duplicates += 1
        else:
            assert isinstance(outcome, Failure)
            self._failed += 1
            self._failures.append(outcome)
