"""The time index of a segment: how far timestamps had risen up to an offset."""

from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from logbroker.records.batch import NO_TIMESTAMP
from logbroker.storage.index_file import Entries, IndexFile

_TIMESTAMP, _OFFSET = 0, 1


class TimeEntry(NamedTuple):
    """The largest timestamp up to some batch, and the last offset of the batch that has it."""

    timestamp_ms: int
    offset: int


class TimeIndex(IndexFile):
    """`<base offset, 20 digits>.timeindex`: sparse, twelve bytes an entry, big-endian.

        0  timestamp  int64   largest timestamp of the segment so far, milliseconds
        8  offset     int32   last offset of the first batch that has it, less the base offset

    Both columns rise strictly: when an entry of the offset index is due and no larger
    timestamp came since the last entry, none is written. A last entry is written when the
    segment is rolled or closed, so it tells the largest timestamp of the whole segment.
    Durability, crash and deletion are those of the offset index.

    Source: Kafka, `TimeIndex.java`.
    """

    ENTRY: ClassVar[Struct] = Struct(">qi")
    __slots__ = ("_last_ms",)

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, base_offset)
        self._last_ms: int | None = None

    def append_if_greater(self, timestamp_ms: int, offset: int) -> None:
        """Gather an entry, unless the last one is as late already."""
        if timestamp_ms > self._last_timestamp():
            self._pending.append(self.ENTRY.pack(timestamp_ms, offset - self.base_offset))
            self._last_ms = timestamp_ms

    def undo(self) -> None:
        """Forget every entry that is not published, in memory and in the file."""
        self._last_ms = None
        super().undo()

    def clear(self) -> None:
        """Empty the file, creating it when it is missing; only while nobody else searches."""
        self._last_ms = None
        super().clear()

    def last(self) -> TimeEntry:
        """The last published entry: the segment's largest timestamp, once it is rolled."""
        entry = self._entry(self._read_last(), 0) if self.count else None
        return entry or TimeEntry(NO_TIMESTAMP, self.base_offset)

    def around(self, timestamp_ms: int) -> tuple[TimeEntry | None, TimeEntry | None]:
        """The last entry that is not later than the timestamp, and the first that is."""
        entries, count = self._entries()
        number = self._floor(entries, count, _TIMESTAMP, timestamp_ms)
        following = number + 1 if number + 1 < count else -1
        return self._entry(entries, number), self._entry(entries, following)

    def last_before(self, offset: int) -> TimeEntry | None:
        """The last entry whose batch ends below `offset`."""
        entries, count = self._entries()
        number = self._floor(entries, count, _OFFSET, offset - 1 - self.base_offset)
        return self._entry(entries, number)

    def items(self) -> list[TimeEntry]:
        """Every published entry."""
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
