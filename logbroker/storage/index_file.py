"""A file of sorted, fixed-size entries: what the offset index and the time index share."""

import mmap
import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import ClassVar

from logbroker.storage.file_writes import write_all

Entries = mmap.mmap | bytes

UNREAD = -1
"""The count of an index file that nobody has looked at yet."""


class IndexFile:
    """Sorted entries that one thread appends while any thread searches them.

    Appended entries are gathered, written with the batches they point at, and become
    visible by `publish` only once both writes succeeded. Searches go through a read-only
    map of the published entries that is made at the first search, so an index nobody asks
    costs no memory and no descriptor. The map never covers an entry that could be taken
    back: touching a truncated page would kill the process.
    """

    ENTRY: ClassVar[Struct]

    __slots__ = ("_count", "_descriptor", "_map", "_pending", "_unpublished", "base_offset", "path")

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._count = UNREAD
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        self._pending: list[bytes] = []
        self._unpublished = 0

    def __del__(self) -> None:
        self.close()

    @property
    def count(self) -> int:
        """How many entries are published; an entry cut by a crash does not count."""
        if self._count == UNREAD:
            self._count = self.path.stat().st_size // self.ENTRY.size
        return self._count

    @property
    def pending_count(self) -> int:
        """How many entries wait to be written."""
        return len(self._pending)

    def write(self) -> None:
        """Write the gathered entries behind the published ones; `OSError` undoes nothing."""
        if self._pending:
            entry_bytes = self.ENTRY.size
            size = len(self._pending) * entry_bytes
            write_all(self._writer(), self._pending, self.count * entry_bytes, size)
            self._unpublished = len(self._pending)
            self._pending.clear()

    def publish(self) -> None:
        """Show what `write` wrote to searches."""
        self._count = self.count + self._unpublished
        self._unpublished = 0

    def undo(self) -> None:
        """Forget every entry that is not published, in memory and in the file."""
        written = self._descriptor >= 0
        self._pending.clear()
        self._unpublished = 0
        if written:
            os.ftruncate(self._descriptor, self.count * self.ENTRY.size)

    def clear(self) -> None:
        """Empty the file, creating it when it is missing; only while nobody else searches."""
        self._pending.clear()
        self._unpublished = 0
        self._map = None
        self.path.open("wb").close()
        self._count = 0

    def sync(self) -> None:
        """Make the written entries durable."""
        os.fsync(self._writer())

    def close(self) -> None:
        """Give the writing descriptor back; the next write opens it anew."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _writer(self) -> int:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._descriptor

    def _read_last(self) -> bytes:
        """The last published entry, read without a map; there is one."""
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), self.ENTRY.size, (self.count - 1) * self.ENTRY.size)

    def _entries(self) -> tuple[Entries, int]:
        """The bytes of the published entries, and how many they are."""
        count = self.count
        size = count * self.ENTRY.size
        if size == 0:
            return b"", 0
        mapped = self._map
        if mapped is None or len(mapped) < size:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
            self._map = mapped
        return mapped, count

    def _floor(self, entries: Entries, count: int, field: int, target: int) -> int:
        """Number of the last entry whose `field` is at most `target`; -1 when there is none."""
        return bisect_right(range(count), target, key=self._field_of(entries, field)) - 1

    def _field_of(self, entries: Entries, field: int) -> Callable[[int], int]:
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        return lambda number: int(unpack(entries, number * size)[field])
