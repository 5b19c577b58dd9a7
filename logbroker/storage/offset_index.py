"""The offset index of a segment, which maps an offset to a position at or before it."""

from struct import Struct
from typing import ClassVar, Final

from logbroker.storage.index_file import Entries, IndexFile

INDEX_INTERVAL_BYTES: Final = 4096
"""The bytes between two entries (Kafka's index.interval.bytes)."""

_OFFSET, _POSITION = 0, 1


class OffsetIndex(IndexFile):
    """`<base offset, 20 digits>.index`: sparse, eight bytes an entry, big-endian.

        0  offset    int32   last offset of a batch, less the segment's base offset
        4  position  int32   position of that batch in the `.log` file

    Both columns ascend. A batch gets an entry if more than `INDEX_INTERVAL_BYTES` were appended
    since the batch of the last entry. The file grows while the segment is active and is
    flushed when the segment is rolled or closed. After a crash its content is undefined, and
    it is rebuilt from the log. Retention renames it with its segment.

    A segment has fewer than 2**31 bytes, so an index never reaches the 10 MiB at which Kafka
    rolls because of a full index.

    Source: Kafka, `OffsetIndex.java`.
    """

    ENTRY: ClassVar[Struct] = Struct(">ii")
    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        """Collect an entry for the batch at `position` whose last offset is `offset`."""
        self._pending.append(self.ENTRY.pack(offset - self.base_offset, position))

    def position_at_or_before(self, offset: int) -> int:
        """Return the position of the batch with `offset` or of an earlier batch."""
        entries, count = self._entries()
        number = self._floor(entries, count, _OFFSET, offset - self.base_offset)
        return self._position(entries, number)

    def last_position_up_to(self, position: int) -> int:
        """Return the last indexed position that is at most `position`."""
        entries, count = self._entries()
        return self._position(entries, self._floor(entries, count, _POSITION, position))

    def last_position(self) -> int:
        """Return the position of the last indexed batch; 0 without entries."""
        entries, count = self._entries()
        return self._position(entries, count - 1)

    def items(self) -> list[tuple[int, int]]:
        """Return all published entries as (offset, position)."""
        entries, count = self._entries()
        pairs = self.ENTRY.iter_unpack(entries[: count * self.ENTRY.size])
        return [(self.base_offset + offset, position) for offset, position in pairs]

    def _position(self, entries: Entries, number: int) -> int:
        if number < 0:
            return 0
        _, position = self.ENTRY.unpack_from(entries, number * self.ENTRY.size)
        return int(position)
