"""The offset index of a segment: from an offset to a place in the file at or before it."""

from struct import Struct
from typing import ClassVar, Final

from logbroker.storage.index_file import Entries, IndexFile

INDEX_INTERVAL_BYTES: Final = 4096
"""An entry is due once more bytes than these have gone by (Kafka's index.interval.bytes)."""

_OFFSET, _POSITION = 0, 1


class OffsetIndex(IndexFile):
    """`<base offset, 20 digits>.index`: sparse, eight bytes an entry, big-endian.

        0  offset    int32   last offset of a batch, less the segment's base offset
        4  position  int32   where that batch begins in the `.log` file

    Both columns rise. A batch gets an entry when more than `INDEX_INTERVAL_BYTES` have been
    appended since the batch of the last entry. The file is appended to while the segment is
    active and made durable when the segment is rolled or closed; after a crash it may hold
    anything and is rebuilt from the log. Retention renames it with its segment.

    A segment has fewer than 2**31 bytes, so an index never outgrows the 10 MiB at which
    Kafka rolls for a full index.

    Source: Kafka, `OffsetIndex.java`.
    """

    ENTRY: ClassVar[Struct] = Struct(">ii")
    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        """Gather an entry for the batch at `position` whose last offset is `offset`."""
        self._pending.append(self.ENTRY.pack(offset - self.base_offset, position))

    def position_at_or_before(self, offset: int) -> int:
        """Where a batch begins that is or precedes the one holding `offset`."""
        entries, count = self._entries()
        number = self._floor(entries, count, _OFFSET, offset - self.base_offset)
        return self._position(entries, number)

    def last_position_up_to(self, position: int) -> int:
        """The last indexed beginning of a batch that is not behind `position`."""
        entries, count = self._entries()
        return self._position(entries, self._floor(entries, count, _POSITION, position))

    def last_position(self) -> int:
        """Where the last indexed batch begins; 0 when there is no entry."""
        entries, count = self._entries()
        return self._position(entries, count - 1)

    def items(self) -> list[tuple[int, int]]:
        """Every published entry as (offset, position)."""
        entries, count = self._entries()
        pairs = self.ENTRY.iter_unpack(entries[: count * self.ENTRY.size])
        return [(self.base_offset + offset, position) for offset, position in pairs]

    def _position(self, entries: Entries, number: int) -> int:
        if number < 0:
            return 0
        _, position = self.ENTRY.unpack_from(entries, number * self.ENTRY.size)
        return int(position)
