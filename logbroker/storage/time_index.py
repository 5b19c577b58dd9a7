"""The time index of a segment, which maps timestamps to offsets."""

from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from logbroker.records.batch import NO_TIMESTAMP
from logbroker.storage.index_file import Entries, IndexFile

_TIMESTAMP, _OFFSET = 0, 1


class TimeEntry(NamedTuple):
    """The largest timestamp up to a batch, and the last offset of the batch that has it."""

    timestamp_ms: int
    offset: int


class TimeIndex(IndexFile):
    """`<base offset, 20 digits>.timeindex`: sparse, twelve bytes an entry, big-endian.

        0  timestamp  int64   largest timestamp of the segment so far, milliseconds
        8  offset     int32   last offset of the first batch that has it, less the base offset

    Both columns ascend strictly: an entry is written with an entry of the offset index, if the
    largest timestamp grew since the last entry. The last entry is written when the segment is
    rolled or closed, so it has the largest timestamp of the segment. Durability, crashes and
    deletion are as for the offset index.

    Source: Kafka, `TimeIndex.java`.
    """

    ENTRY: ClassVar[Struct] = Struct(">qi")
    __slots__ = ("_last_ms",)

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, base_offset)
        self._last_ms: int | None = None

    def append_if_greater(self, timestamp_ms: int, offset: int) -> None:
        """Collect an entry if its timestamp is greater than that of the last one."""
        if timestamp_ms > self._last_timestamp():
            self._pending.append(self.ENTRY.pack(timestamp_ms, offset - self.base_offset))
            self._last_ms = timestamp_ms

    def undo(self) -> None:
        """Remove all unpublished entries from memory and from the file."""
        self._last_ms = None
        super().undo()

    def clear(self) -> None:
        """Truncate or create the file; no other thread may search meanwhile."""
        self._last_ms = None
        super().clear()

    def last(self) -> TimeEntry:
        """Return the last published entry; in a rolled segment, its largest timestamp."""
        entry = self._entry(self._read_last(), 0) if self.count else None
        return entry or TimeEntry(NO_TIMESTAMP, self.base_offset)

    def around(self, timestamp_ms: int) -> tuple[TimeEntry | None, TimeEntry | None]:
        """Return the last entry up to the timestamp, and the first entry after it."""
        entries, count = self._entries()
        number = self._floor(entries, count, _TIMESTAMP, timestamp_ms)
        following = number + 1 if number + 1 < count else -1
        return self._entry(entries, number), self._entry(entries, following)

    def last_before(self, offset: int) -> TimeEntry | None:
        """Return the last entry whose batch ends below `offset`."""
        entries, count = self._entries()
        number = self._floor(entries, count, _OFFSET, offset - 1 - self.base_offset)
        return self._entry(entries, number)

    def items(self) -> list[TimeEntry]:
        """Return all published entries."""
        entries, count = self._entries()
        pairs = self.ENTRY.iter_unpack(entries[: count * self.ENTRY.size])
        return [TimeEntry(timestamp, self.base_offset + offset) for timestamp, offset in pairs]

    def _last_timestamp(self) -> int:
        if self._last_ms is None:
            self._last_ms = self.last().timestamp_ms
        return self._last_ms

    def _entry(self, entries: Entries, number: int) -> TimeEntry | None:
        if number < 0:
            return None
        timestamp, offset = self.ENTRY.unpack_from(entries, number * self.ENTRY.size)
        return TimeEntry(timestamp, self.base_offset + offset)
