"""A segment of a log: one `.log` file of batches with its two indexes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from logbroker.errors import CorruptBatch
from logbroker.records.batch import NO_TIMESTAMP, BatchHeader
from logbroker.storage.batch_scan import headers
from logbroker.storage.domain.retention import Reason, SegmentExtent
from logbroker.storage.file_writes import write_all
from logbroker.storage.offset_index import INDEX_INTERVAL_BYTES, OffsetIndex
from logbroker.storage.segment_file import SegmentFile
from logbroker.storage.time_index import TimeIndex

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

_NOT_LOADED: Final = -2
"""The largest timestamp of a rolled segment whose time index is not read yet."""


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a partition's file: its first offset in 20 digits, and the suffix."""
    return f"{offset:020d}{suffix}"


class Deleted(NamedTuple):
    """A segment deleted by retention; its files are renamed and can be removed."""

    base_offset: int
    size_bytes: int
    reason: Reason
    paths: list[Path]


class LogSegment:
    """`<base offset, 20 digits>.log`: consecutive batches, with `.index` and `.timeindex`.

    The last segment of a log is active: batches are staged in memory by `add_batch`, written
    together by `write` and removed by `undo`. Written bytes never change. A crash may leave
    any part of the unflushed bytes; `recovery` truncates the file at the first batch that is
    not intact. Retention renames the files to `*.deleted`, and the broker removes them later.
    A segment that is not active opens its file at the first read.

    Source: Kafka, `LogSegment.java`.
    """

    __slots__ = (
        "_file",
        "_folder",
        "_newest_ms",
        "_newest_offset",
        "_written",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "end_position",
        "first_timestamp",
        "offset_index",
        "size_bytes",
        "staged",
        "time_index",
    )

    def __init__(self, folder: Path, base_offset: int, size_bytes: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        """The written bytes."""
        self.end_position = size_bytes
        """The written and staged bytes."""
        self.staged: list[memoryview] = []
        self.first_timestamp = NO_TIMESTAMP
        """The largest timestamp of the first batch; the log rolls `segment.ms` after it."""
        self.created_ms = created_ms
        """The time of the first append, or of opening the log."""
        self.bytes_since_index = 0
        self.offset_index = OffsetIndex(
            folder / file_name(base_offset, OFFSET_INDEX_SUFFIX), base_offset
        )
        self.time_index = TimeIndex(folder / file_name(base_offset, TIME_INDEX_SUFFIX), base_offset)
        self._folder = folder
        self._file: SegmentFile | None = None
        self._newest_ms = _NOT_LOADED
        self._newest_offset = base_offset
        self._written = (0, _NOT_LOADED, base_offset)

    @classmethod
    def create(cls, folder: Path, base_offset: int) -> "LogSegment":
        """Create an empty segment with its three files; existing files are truncated."""
        segment = cls(folder, base_offset, 0, 0)
        segment.path.open("wb").close()
        segment.clear_indexes()
        return segment

    @property
    def path(self) -> Path:
        """The `.log` file."""
        return self._folder / file_name(self.base_offset, LOG_SUFFIX)

    @property
    def paths(self) -> list[Path]:
        """The `.log` file, both indexes, and the producer snapshot at the base offset."""
        snapshot = self._folder / file_name(self.base_offset, SNAPSHOT_SUFFIX)
        return [self.path, self.offset_index.path, self.time_index.path, snapshot]

    @property
    def file(self) -> SegmentFile:
        """The open file; it is opened at the first use."""
        file = self._file
        if file is None:
            file = self._file = SegmentFile(self.path)
        return file

    @property
    def newest_timestamp_ms(self) -> int:
        """The largest timestamp of the batches, including staged ones; -1 if there is none."""
        if self._newest_ms == _NOT_LOADED:
            self._newest_ms, self._newest_offset = self.time_index.last()
        return self._newest_ms

    def open_for_reading(self) -> None:
        """Open the file and map both indexes, so that no later read opens them by name."""
        self.file.fileno()
        self.offset_index.last_position()
        self.time_index.around(self.newest_timestamp_ms)

    def retention_timestamp_ms(self) -> int:
        """Return the timestamp for retention: the largest one, or the file's mtime if none."""
        newest = self.newest_timestamp_ms
        return newest if newest >= 0 else self.path.stat().st_mtime_ns // 1_000_000

    def age_ms(self, timestamp_ms: int, now_ms: int) -> int:
        """Return the age of the segment when a batch with this timestamp is appended.

        It is the difference to the first batch's timestamp; without one, the elapsed time.
        """
        if self.first_timestamp >= 0:
            return timestamp_ms - self.first_timestamp
        return now_ms - self.created_ms

    # --- appending: only on the loop's thread ---

    def set_first_batch(self, timestamp_ms: int, now_ms: int) -> None:
        """Store the timestamp and the time of the first batch."""
        self.first_timestamp = timestamp_ms
        self.created_ms = now_ms

    def add_batch(self, size: int, last_offset: int, timestamp_ms: int) -> None:
        """Add a batch of `size` bytes at `end_position`, with an index entry if one is due."""
        position = self.end_position
        if timestamp_ms > self._newest_ms:
            self._newest_ms = timestamp_ms
            self._newest_offset = last_offset
        if self.bytes_since_index > INDEX_INTERVAL_BYTES:
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_greater(self._newest_ms, self._newest_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.end_position = position + size

    def write(self) -> None:
        """Write the staged batches and their index entries.

        Raises:
            OSError: the write failed; `undo` restores the state of the last write.
        """
        size = self.end_position - self.size_bytes
        write_all(self.file.fileno(), self.staged, self.size_bytes, size)
        self.staged.clear()
        self.write_indexes()
        self.size_bytes = self.end_position

    def write_indexes(self) -> None:
        """Write and publish the collected index entries."""
        self.time_index.write()
        self.offset_index.write()
        # A search that finds an offset entry must find the time entry of the same batch:
        # `position_before_time` relies on it.
        self.time_index.publish()
        self.offset_index.publish()
        self._written = (self.bytes_since_index, self._newest_ms, self._newest_offset)

    def undo(self) -> None:
        """Remove what was staged or partially written since the last successful `write`.

        Raises:
            OSError: the files could not be truncated.
        """
        self.staged.clear()
        self.end_position = self.size_bytes
        self.bytes_since_index, self._newest_ms, self._newest_offset = self._written
        self.time_index.undo()
        self.offset_index.undo()
        os.ftruncate(self.file.fileno(), self.size_bytes)

    def write_last_time_entry(self) -> None:
        """Write the last entry of the time index: the largest timestamp of the segment."""
        if self.newest_timestamp_ms >= 0:
            self.time_index.append_if_greater(self._newest_ms, self._newest_offset)
        self.write_indexes()

    def sync(self) -> None:
        """Flush the written batches; safe on any thread."""
        os.fdatasync(self.file.fileno())

    def sync_indexes(self) -> None:
        """Flush the indexes and close them for writing, when no entry will be added."""
        for index in (self.offset_index, self.time_index):
            # If retention has renamed them meanwhile, recovery does not read them.
            with suppress(FileNotFoundError):
                index.sync()
            index.close()

    # --- opening ---

    def clear_indexes(self) -> None:
        """Truncate both indexes, before all batches are added again."""
        self.offset_index.clear()
        self.time_index.clear()
        self.end_position = 0
        self.bytes_since_index = 0
        self._newest_ms, self._newest_offset = NO_TIMESTAMP, self.base_offset
        self._written = (0, NO_TIMESTAMP, self.base_offset)

    def resume(self) -> int:
        """Make a cleanly closed segment active and return the offset after its last batch.

        Reads only the first header and those after the last index entry.

        Raises:
            CorruptBatch: the file does not end with a whole batch.
        """
        next_offset, end = self.base_offset, 0
        last_indexed = self.offset_index.last_position()
        for position, header in self.headers(last_indexed, self.size_bytes):
            next_offset, end = header.next_offset, position + header.size
        if end != self.size_bytes:
            raise CorruptBatch(f"{self.path.name} ends inside a batch, at {self.size_bytes}")
        self.bytes_since_index = self.size_bytes - last_indexed
        self.read_first_timestamp()
        self._written = (self.bytes_since_index, self.newest_timestamp_ms, self._newest_offset)
        return next_offset

    def read_first_timestamp(self) -> None:
        """Set `first_timestamp` from the first header."""
        for _, header in self.headers(0, self.size_bytes):
            self.first_timestamp = header.max_timestamp
            return

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file; no other thread may read it meanwhile."""
        os.ftruncate(self.file.fileno(), size_bytes)
        self.size_bytes = size_bytes

    def remove(self) -> None:
        """Remove all files of the segment; no other thread may read them meanwhile."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    # --- reading: any thread, below the limit of the caller ---

    def headers(self, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each whole batch between two positions."""
        return headers(self.file.fileno(), start, end)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Read one batch."""
        return os.pread(self.file.fileno(), header.size, position)

    def find(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """Return the first batch below position `end` whose last offset is at least `offset`."""
        start = self.offset_index.position_at_or_before(offset)
        for position, header in self.headers(start, end):
            if header.last_offset >= offset:
                return position, header
        return None

    def find_batch_at(self, start: int, end: int, limit: int) -> tuple[int, BatchHeader]:
        """Return the batch that contains position `end`.

        `start` and `limit` are positions of batches, and `limit` is greater than `end`.
        """
        from_position = max(start, self.offset_index.last_position_up_to(end))
        for position, header in self.headers(from_position, limit):
            if position + header.size > end:
                return position, header
        raise CorruptBatch(f"{self.path.name}: no batch contains position {end}")

    def position_before_time(self, timestamp_ms: int) -> int:
        """Return the position of a batch such that all earlier batches are older.

        The time index has two entries between which the timestamp was reached. It was reached
        in the last interval of the offset index before the second entry, since an earlier
        increase would have written an earlier entry. So a search reads a few kilobytes, even
        after many batches with old timestamps.
        """
        # Read first: entries that a writer adds meanwhile must not increase it.
        last_position = self.offset_index.last_position()
        floor, following = self.time_index.around(timestamp_ms)
        if floor is not None and floor.timestamp_ms == timestamp_ms:
            return self.offset_index.position_at_or_before(floor.offset)
        if following is not None:
            return self.offset_index.position_at_or_before(following.offset - 1)
        return last_position


def segment_extents(segments: Sequence[LogSegment], log_end_offset: int) -> Iterator[SegmentExtent]:
    """Yield the retention input of each segment; reads a time index only when iterated."""
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    for segment, next_offset in zip(segments, ends, strict=True):
        newest_ms = segment.retention_timestamp_ms()
        yield SegmentExtent(segment.base_offset, next_offset, segment.end_position, newest_ms)


def mark_deleted(segment: LogSegment, reason: Reason) -> Deleted:
    """Rename a segment's files to `*.deleted`, so that the next start ignores them."""
    renamed = [
        path.rename(path.with_name(path.name + DELETED_SUFFIX))
        for path in segment.paths
        if path.exists()
    ]
    return Deleted(segment.base_offset, segment.size_bytes, reason, renamed)
