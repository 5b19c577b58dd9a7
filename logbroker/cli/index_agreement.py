"""Verifies that the index files of a segment agree with its batches.

Both indexes are sorted like the batches, so one pass over the segment verifies them, with only
their entries in memory.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from logbroker.records.batch import NO_TIMESTAMP, BatchHeader
from logbroker.storage.index_file import IndexFile
from logbroker.storage.offset_index import OffsetIndex
from logbroker.storage.time_index import TimeIndex

Entry = tuple[int, int]


class IndexAgreement(ABC):
    """The entries of one index, each compared with its batch."""

    def __init__(self, index: IndexFile, entries: list[Entry], unused: Entry) -> None:
        self._name: Final = index.path.name
        # Kafka preallocates the index of an active segment, filled with zeros.
        while entries and entries[-1] == unused:
            entries.pop()
        self._entries = entries
        self._at = 0
        self._wrong: list[str] = []
        if index.path.stat().st_size % index.ENTRY.size:
            self._wrong.append(f"the file ends inside an entry of {index.ENTRY.size} bytes")

    def see(self, position: int, header: BatchHeader) -> None:
        """Compare the entries for this batch; batches come in order."""
        while self._at < len(self._entries):
            entry = self._entries[self._at]
            if not self._is_due(entry, position, header):
                return
            problem = self._problem(entry, position, header)
            if problem:
                self._wrong.append(f"entry {self._at} {problem}")
            self._at += 1

    def finish(self) -> list[str]:
        """Return the problems after all batches; an entry without a batch is one."""
        for number in range(self._at, len(self._entries)):
            self._wrong.append(f"entry {number} is about no batch of the segment")
        self._at = len(self._entries)
        return self._wrong

    def verdict(self) -> str:
        """Return one line: that all entries agree, or the first problem."""
        wrong = self.finish()
        beginning = f"{self._name} entries={len(self._entries)}"
        return f"{beginning} wrong={len(wrong)}: {wrong[0]}" if wrong else f"{beginning} agrees"

    @abstractmethod
    def _is_due(self, entry: Entry, position: int, header: BatchHeader) -> bool:
        """Return whether the entry is for this batch or an earlier one."""

    @abstractmethod
    def _problem(self, entry: Entry, position: int, header: BatchHeader) -> str | None:
        """Return the difference between a due entry and the batch, if any."""


class OffsetIndexAgreement(IndexAgreement):
    """Entries have the last offset and the position of a batch."""

    def __init__(self, path: Path, base_offset: int) -> None:
        index = OffsetIndex(path, base_offset)
        super().__init__(index, index.items(), unused=(base_offset, 0))

    def _is_due(self, entry: Entry, position: int, header: BatchHeader) -> bool:  # noqa: ARG002
        return entry[1] <= position

    def _problem(self, entry: Entry, position: int, header: BatchHeader) -> str | None:
        offset, indexed_position = entry
        if indexed_position != position:
            return f"names position {indexed_position}, where no batch begins"
        if offset != header.last_offset:
            return f"has offset {offset}; the batch at {position} ends at {header.last_offset}"
        return None


class TimeIndexAgreement(IndexAgreement):
    """Entries have a new maximum timestamp, and the last offset of its batch."""

    def __init__(self, path: Path, base_offset: int) -> None:
        index = TimeIndex(path, base_offset)
        entries = [(entry.timestamp_ms, entry.offset) for entry in index.items()]
        super().__init__(index, entries, unused=(0, base_offset))
        self._newest_before = NO_TIMESTAMP

    def see(self, position: int, header: BatchHeader) -> None:
        """Compare the entries for this batch, and record its maximum timestamp."""
        super().see(position, header)
        self._newest_before = max(self._newest_before, header.max_timestamp)

    def _is_due(self, entry: Entry, position: int, header: BatchHeader) -> bool:  # noqa: ARG002
        return entry[1] <= header.last_offset

    def _problem(self, entry: Entry, position: int, header: BatchHeader) -> str | None:
        timestamp_ms, offset = entry
        if offset != header.last_offset:
            return f"has offset {offset}, at which no batch ends"
        if timestamp_ms != header.max_timestamp:
            return f"has time {timestamp_ms}; the batch at {position} has {header.max_timestamp}"
        if timestamp_ms <= self._newest_before:
            return f"has time {timestamp_ms}, which a batch before {position} had reached"
        return None
