"""A file of sorted entries of fixed size: the base of the offset index and the time index."""

import mmap
import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import ClassVar

from logbroker.storage.file_writes import write_all

Entries = mmap.mmap | bytes

NOT_LOADED = -1
"""The count of an index whose file size is not read yet."""


class IndexFile:
    """Sorted entries that one thread appends while any thread searches them.

    Appended entries are collected and written together with their batches. `publish` makes
    them visible after both writes succeeded. Searches use a read-only memory map of the
    published entries, created at the first search, so an unused index needs no memory and no
    descriptor. The map never covers an entry that may be undone: reading a truncated page
    would kill the process.
    """

    ENTRY: ClassVar[Struct]

    __slots__ = ("_count", "_descriptor", "_map", "_pending", "_unpublished", "base_offset", "path")

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._count = NOT_LOADED
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        self._pending: list[bytes] = []
        self._unpublished = 0

    def __del__(self) -> None:
        self.close()

    @property
    def count(self) -> int:
        """The number of published entries; an entry torn by a crash is not counted."""
        if self._count == NOT_LOADED:
            self._count = self.path.stat().st_size // self.ENTRY.size
        return self._count

    @property
    def pending_count(self) -> int:
        """The number of collected entries that are not written yet."""
        return len(self._pending)

    def write(self) -> None:
        """Write the collected entries after the published ones; an `OSError` undoes nothing."""
        if self._pending:
            entry_bytes = self.ENTRY.size
            size = len(self._pending) * entry_bytes
            write_all(self._writer(), self._pending, self.count * entry_bytes, size)
            self._unpublished = len(self._pending)
            self._pending.clear()

    def publish(self) -> None:
        """Make the entries of the last `write` visible to searches."""
        self._count = self.count + self._unpublished
        self._unpublished = 0

    def undo(self) -> None:
        """Remove all unpublished entries from memory and from the file."""
        written = self._descriptor >= 0
        self._pending.clear()
        self._unpublished = 0
        if written:
            os.ftruncate(self._descriptor, self.count * self.ENTRY.size)

    def clear(self) -> None:
        """Truncate or create the file; no other thread may search meanwhile."""
        self._pending.clear()
        self._unpublished = 0
        self._map = None
        self.path.open("wb").close()
        self._count = 0

    def sync(self) -> None:
        """Flush the written entries to disk."""
        os.fsync(self._writer())

    def close(self) -> None:
        """Close the descriptor for writing; the next write reopens it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _writer(self) -> int:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._descriptor

    def _read_last(self) -> bytes:
        """Read the last published entry without a map; the index must not be empty."""
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), self.ENTRY.size, (self.count - 1) * self.ENTRY.size)

    def _entries(self) -> tuple[Entries, int]:
        """Return the bytes and the number of the published entries."""
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
        """Return the number of the last entry whose `field` is at most `target`, or -1."""
        return bisect_right(range(count), target, key=self._field_of(entries, field)) - 1

    def _field_of(self, entries: Entries, field: int) -> Callable[[int], int]:
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        return lambda number: int(unpack(entries, number * size)[field])
