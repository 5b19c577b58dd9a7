"""Whether the index files beside a segment agree with its batches.

Both indexes are sorted as the batches are, so one walk over the segment checks them, with
nothing in memory but their entries.
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
    """The entries of one index, each held against the batch that it is about."""

    def __init__(self, index: IndexFile, entries: list[Entry], unused: Entry) -> None:
        self._name: Final = index.path.name
        # Kafka allots the file of an active segment in advance and fills it with zeros.
        while entries and entries[-1] == unused:
            entries.pop()
        self._entries = entries
        self._at = 0
        self._wrong: list[str] = []
        if index.path.stat().st_size % index.ENTRY.size:
            self._wrong.append(f"the file ends inside an entry of {index.ENTRY.size} bytes")

    def see(self, position: int, header: BatchHeader) -> None:
        """Hold the entries about this batch against it; batches come in their order."""
        while self._at < len(self._entries):
            entry = self._entries[self._at]
            if not self._is_due(entry, position, header):
                return
            problem = self._problem(entry, position, header)
            if problem:
                self._wrong.append(f"entry {self._at} {problem}")
            self._at += 1

    def finish(self) -> list[str]:
        """What is wrong, once every batch was seen: an entry about none of them is."""
        for number in range(self._at, len(self._entries)):
            self._wrong.append(f"entry {number} is about no batch of the segment")
        self._at = len(self._entries)
        return self._wrong

    def verdict(self) -> str:
        """One line: all entries agree, or how many things are wrong and the first of them."""
        wrong = self.finish()
        beginning = f"{self._name} entries={len(self._entries)}"
        return f"{beginning} wrong={len(wrong)}: {wrong[0]}" if wrong else f"{beginning} agrees"

    @abstractmethod
    def _is_due(self, entry: Entry, position: int, header: BatchHeader) -> bool:
        """Whether the entry is about this batch or one before it."""

    @abstractmethod
    def _problem(self, entry: Entry, position: int, header: BatchHeader) -> str | None:
        """What a due entry says and the batch does not."""


class OffsetIndexAgreement(IndexAgreement):
    """An entry is the last offset of a batch and the position at which that batch begins."""

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
    """An entry is a timestamp above all before it, and the last offset of the batch that has it."""

    def __init__(self, path: Path, base_offset: int) -> None:
        index = TimeIndex(path, base_offset)
        entries = [(entry.timestamp_ms, entry.offset) for entry in index.items()]
        super().__init__(index, entries, unused=(0, base_offset))
        self._newest_before = NO_TIMESTAMP

    def see(self, position: int, header: BatchHeader) -> None:
        """Hold the entries about this batch against it, and remember how late it is."""
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
