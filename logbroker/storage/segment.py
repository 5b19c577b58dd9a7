"""A segment: one `.log` file of batches with its two indexes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from logbroker.errors import CorruptBatch
from logbroker.records.batch import NO_TIMESTAMP, BatchHeader
from logbroker.storage.batch_scan import headers
from logbroker.storage.file_writes import write_all
from logbroker.storage.offset_index import INDEX_INTERVAL_BYTES, OffsetIndex
from logbroker.storage.retention import Reason, SegmentExtent
from logbroker.storage.segment_file import SegmentFile
from logbroker.storage.time_index import TimeIndex

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

_UNREAD: Final = -2
"""The largest timestamp of a rolled segment whose time index was not asked yet."""


def file_name(offset: int, suffix: str) -> str:
    """The name of a file of a partition: the offset it begins at, in twenty digits."""
    return f"{offset:020d}{suffix}"


class Deleted(NamedTuple):
    """A segment that retention took: its files are renamed already and may be removed."""

    base_offset: int
    size_bytes: int
    reason: Reason
    paths: list[Path]


class LogSegment:
    """`<base offset, 20 digits>.log`: batches back to back, and `.index`, `.timeindex` by it.

    The last segment of a log is active: batches are staged in memory by `account`, written
    together by `write` and taken back by `undo`. Written bytes are never changed. A crash
    may leave any part of what was not flushed; `recovery` cuts it at the first batch that
    is not intact. Retention renames the files to `*.deleted`, and the broker removes them a
    while later. A segment that is not active opens its file at the first read.

    Source: Kafka, `LogSegment.java`.
    """

    __slots__ = (
        "_file",
        "_folder",
        "_newest_ms",
        "_newest_offset",
        "_written",
        "base_offset",
        "begun_ms",
        "bytes_since_index",
        "end_position",
        "first_timestamp",
        "offset_index",
        "size_bytes",
        "staged",
        "time_index",
    )

    def __init__(self, folder: Path, base_offset: int, size_bytes: int, begun_ms: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        """Bytes that are written."""
        self.end_position = size_bytes
        """Bytes that are written or staged."""
        self.staged: list[memoryview] = []
        self.first_timestamp = NO_TIMESTAMP
        """Largest timestamp of the first batch: the log rolls `segment.ms` after it."""
        self.begun_ms = begun_ms
        """When the first batch came, or the log was opened."""
        self.bytes_since_index = 0
        self.offset_index = OffsetIndex(
            folder / file_name(base_offset, OFFSET_INDEX_SUFFIX), base_offset
        )
        self.time_index = TimeIndex(folder / file_name(base_offset, TIME_INDEX_SUFFIX), base_offset)
        self._folder = folder
        self._file: SegmentFile | None = None
        self._newest_ms = _UNREAD
        self._newest_offset = base_offset
        self._written = (0, _UNREAD, base_offset)

    @classmethod
    def create(cls, folder: Path, base_offset: int) -> "LogSegment":
        """A new, empty segment with its three files; what a crash left of them is emptied."""
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
        """The `.log` file, both indexes and the snapshot of producers taken at its start."""
        snapshot = self._folder / file_name(self.base_offset, SNAPSHOT_SUFFIX)
        return [self.path, self.offset_index.path, self.time_index.path, snapshot]

    @property
    def file(self) -> SegmentFile:
        """The open file; opened at the first use."""
        file = self._file
        if file is None:
            file = self._file = SegmentFile(self.path)
        return file

    @property
    def newest_timestamp_ms(self) -> int:
        """The largest timestamp of its batches, those staged included; -1 without any."""
        if self._newest_ms == _UNREAD:
            self._newest_ms, self._newest_offset = self.time_index.last()
        return self._newest_ms

    def retention_timestamp_ms(self) -> int:
        """The age that retention goes by: the largest timestamp, else the file's last change."""
        newest = self.newest_timestamp_ms
        return newest if newest >= 0 else self.path.stat().st_mtime_ns // 1_000_000

    def age_ms(self, timestamp_ms: int, now_ms: int) -> int:
        """How long the segment has been active when a batch of this timestamp arrives.

        Measured from the first batch's timestamp to this one; by the clock where batches
        carry none.
        """
        if self.first_timestamp >= 0:
            return timestamp_ms - self.first_timestamp
        return now_ms - self.begun_ms

    # --- appending: the broker's loop alone ---

    def begin(self, timestamp_ms: int, now_ms: int) -> None:
        """Note the times of the first batch."""
        self.first_timestamp = timestamp_ms
        self.begun_ms = now_ms

    def account(self, size: int, last_offset: int, timestamp_ms: int) -> None:
        """Count a batch of `size` bytes at `end_position`, with an index entry when one is due."""
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
        """Write everything staged, with its index entries.

        Raises:
            OSError: as the disk says; `undo` restores the last good state.
        """
        size = self.end_position - self.size_bytes
        write_all(self.file.fileno(), self.staged, self.size_bytes, size)
        self.staged.clear()
        self.write_indexes()
        self.size_bytes = self.end_position

    def write_indexes(self) -> None:
        """Write and publish the index entries gathered so far."""
        self.time_index.write()
        self.offset_index.write()
        # A search that sees an offset entry must see the time entry of the same batch:
        # `position_before_time` relies on it.
        self.time_index.publish()
        self.offset_index.publish()
        self._written = (self.bytes_since_index, self._newest_ms, self._newest_offset)

    def undo(self) -> None:
        """Take back what was staged or half written since the last successful `write`.

        Raises:
            OSError: the files could not be cut back.
        """
        self.staged.clear()
        self.end_position = self.size_bytes
        self.bytes_since_index, self._newest_ms, self._newest_offset = self._written
        self.time_index.undo()
        self.offset_index.undo()
        os.ftruncate(self.file.fileno(), self.size_bytes)

    def finish(self) -> None:
        """Write the last entry of the time index: the largest timestamp of the segment."""
        if self.newest_timestamp_ms >= 0:
            self.time_index.append_if_greater(self._newest_ms, self._newest_offset)
        self.write_indexes()

    def sync(self) -> None:
        """Make the written batches durable; from any thread."""
        os.fdatasync(self.file.fileno())

    def sync_indexes(self) -> None:
        """Make the indexes durable and close them for writing: nothing is added any more."""
        for index in (self.offset_index, self.time_index):
            # Retention may have renamed them meanwhile; then nobody will recover them.
            with suppress(FileNotFoundError):
                index.sync()
            index.close()

    # --- opening ---

    def clear_indexes(self) -> None:
        """Begin both indexes anew, before batches are counted from the first on."""
        self.offset_index.clear()
        self.time_index.clear()
        self.end_position = 0
        self.bytes_since_index = 0
        self._newest_ms, self._newest_offset = NO_TIMESTAMP, self.base_offset
        self._written = (0, NO_TIMESTAMP, self.base_offset)

    def resume(self) -> int:
        """Make a cleanly closed segment active again: the offset after its last batch.

        Reads the first header and those behind the last index entry, nothing else.

        Raises:
            CorruptBatch: the end of the file is not the end of a batch.
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
        """Learn from the first header when the segment began."""
        for _, header in self.headers(0, self.size_bytes):
            self.first_timestamp = header.max_timestamp
            return

    def truncate(self, size_bytes: int) -> None:
        """Cut the file; only while nobody reads it."""
        os.ftruncate(self.file.fileno(), size_bytes)
        self.size_bytes = size_bytes

    def remove(self) -> None:
        """Remove every file of the segment; only while nobody reads them."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    # --- reading: any thread, below the bound that the caller passes ---

    def headers(self, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each whole batch between two positions."""
        return headers(self.file.fileno(), start, end)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """All bytes of one batch."""
        return os.pread(self.file.fileno(), header.size, position)

    def find(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """The first batch below position `end` that ends at `offset` or behind it."""
        start = self.offset_index.position_at_or_before(offset)
        for position, header in self.headers(start, end):
            if header.last_offset >= offset:
                return position, header
        return None

    def batch_across(self, start: int, end: int, limit: int) -> tuple[int, BatchHeader]:
        """The batch that begins at or before `end` and ends behind it.

        `start` begins a batch, and so does `limit`, which is greater than `end`.
        """
        from_position = max(start, self.offset_index.last_position_up_to(end))
        for position, header in self.headers(from_position, limit):
            if position + header.size > end:
                return position, header
        raise CorruptBatch(f"{self.path.name}: no batch covers position {end}")

    def position_before_time(self, timestamp_ms: int) -> int:
        """A batch's place before which no batch has a timestamp this late.

        The time index tells between which two entries timestamps rose so far. They rose
        within the one interval of the offset index that ends at the later entry: had they
        risen earlier, an entry would have been due earlier. So even a search that begins
        after a long stretch of old timestamps reads a few kilobytes.
        """
        # Asked first: entries that a writer adds meanwhile must not move it forward.
        last_position = self.offset_index.last_position()
        floor, following = self.time_index.around(timestamp_ms)
        if floor is not None and floor.timestamp_ms == timestamp_ms:
            return self.offset_index.position_at_or_before(floor.offset)
        if following is not None:
            return self.offset_index.position_at_or_before(following.offset - 1)
        return last_position


def extents(segments: Sequence[LogSegment], log_end_offset: int) -> Iterator[SegmentExtent]:
    """What the rules look at, segment by segment: the time index is asked only when it is due."""
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    for segment, next_offset in zip(segments, ends, strict=True):
        newest_ms = segment.retention_timestamp_ms()
        yield SegmentExtent(segment.base_offset, next_offset, segment.end_position, newest_ms)


def mark_deleted(segment: LogSegment, reason: Reason) -> Deleted:
    """Rename a segment's files to `*.deleted`, so that they are gone for the next opening."""
    renamed = [
        path.rename(path.with_name(path.name + DELETED_SUFFIX))
        for path in segment.paths
        if path.exists()
    ]
    return Deleted(segment.base_offset, segment.size_bytes, reason, renamed)
