"""The read side of a partition's log, which any thread may use."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from logbroker.errors import CorruptBatch, OffsetOutOfRange, StorageFailed
from logbroker.records.file_span import LogSpan
from logbroker.storage.log_view import (
    LogOffsetMetadata,
    LogView,
    ReadPositions,
    TimestampOffset,
)
from logbroker.storage.segment import LogSegment

T = TypeVar("T")


class ReadableLog:
    """Reads records below the high watermark, without a lock, while one thread writes.

    Every read uses one `LogView`, which the writer replaces atomically.
    """

    def __init__(
        self,
        folder: Path,
        segments: tuple[LogSegment, ...],
        start_offset: int,
        end: LogOffsetMetadata,
    ) -> None:
        self.folder = folder
        self.log_end_offset = end.offset
        """The offset of the next record; includes staged records."""
        self._view = LogView(segments, start_offset, end, ReadPositions())

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """All segments, oldest first; the last one is active."""
        return self._view.segments

    @property
    def view(self) -> LogView:
        """The current view, which is immutable; safe on any thread."""
        return self._view

    def has_adjacent(self, segments: Sequence[LogSegment]) -> bool:
        """Return whether the log still has these segments, next to each other."""
        present = self._view.segments
        first = next((n for n, each in enumerate(present) if each is segments[0]), -1)
        return first >= 0 and present[first : first + len(segments)] == tuple(segments)

    def replace_segments(self, replaced: Sequence[LogSegment], segment: LogSegment) -> None:
        """Replace adjacent rolled segments by one with the same first and last offset.

        Reads with an older view continue with the open files of the replaced segments.
        """
        present = self._view.segments
        first = present.index(replaced[0])
        segments = (*present[:first], segment, *present[first + len(replaced) :])
        # Positions have changed, so the cache must not be shared with the older view.
        self._view = self._view._replace(segments=segments, read_ends=ReadPositions())

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""
        return self._view.start_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which records are flushed and readable."""
        return self._view.end.offset

    @property
    def size_bytes(self) -> int:
        """The written bytes of all segments."""
        return sum(segment.size_bytes for segment in self._view.segments)

    def read(self, offset: int, bytes_max: int, *, whole_batch: bool) -> LogSpan | None:
        """Return whole batches from the one with `offset`, of at most `bytes_max` in total.

        Returns None if no record from `offset` on is below the high watermark, or if the first
        batch is larger than `bytes_max`. With `whole_batch`, the first batch is returned in any
        size, so that a consumer cannot get stuck (KIP-74).

        Raises:
            OffsetOutOfRange: `offset` is below the log start or above the log end offset.
            StorageFailed: the read failed.
        """
        return self._read_view(lambda view: self._span(view, offset, bytes_max, whole_batch))

    def is_before_last_segment(self, offset: int) -> bool:
        """Return whether a segment after that of `offset` is readable; a read ends before it."""
        view = self._view
        if offset >= view.end.offset:
            return False
        return view.segment_of(offset).base_offset < view.end.base_offset

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record with at least this timestamp, below the high watermark.

        A batch that cannot be read counts as one record with its largest timestamp.

        Raises:
            StorageFailed: the read failed.
        """
        return self._read_view(lambda view: view.offset_for_time(timestamp_ms))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp below the high watermark.

        Raises: as `offset_for_time`.
        """
        return self._read_view(lambda view: view.offset_of_max_timestamp())

    def _read_view(self, read: Callable[[LogView], T]) -> T:
        view = self._view
        try:
            return read(view)
        except FileNotFoundError as cause:
            if view.segments is self._view.segments:
                raise StorageFailed(f"{self.folder.name}: {cause}") from cause
            # Retention renamed a file after the view was read; the new view does not have it.
            return self._read_view(read)
        except OSError as cause:
            raise StorageFailed(f"{self.folder.name}: read failed: {cause}") from cause

    def _span(
        self, view: LogView, offset: int, bytes_max: int, whole_batch: bool
    ) -> LogSpan | None:
        if not view.start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.folder.name}: offset {offset}; "
                f"the log has {view.start_offset} to {self.log_end_offset}"
            )
        if offset >= view.end.offset:
            return None
        segment = view.segment_of(offset)
        segment.file.check()
        limit = view.readable_bytes(segment)
        start = self._position_of(view, segment, offset, limit)
        end, next_offset = self._end_of_read(view, segment, start, start + bytes_max, whole_batch)
        return LogSpan(segment.file, start, end - start, next_offset) if end > start else None

    def _end_of_read(
        self, view: LogView, segment: LogSegment, start: int, end: int, whole_batch: bool
    ) -> tuple[int, int]:
        """Return the end position of a read and the offset of the next record."""
        limit = view.readable_bytes(segment)
        if end >= limit:
            if segment.base_offset != view.end.base_offset:
                return limit, view.next_base_offset(segment)
            view.read_ends.store(view.end.offset, limit)
            return limit, view.end.offset
        position, header = segment.find_batch_at(start, end, limit)
        next_offset = header.base_offset
        if position == start and whole_batch:
            position, next_offset = start + header.size, header.next_offset
        view.read_ends.store(next_offset, position)
        return position, next_offset

    def _position_of(self, view: LogView, segment: LogSegment, offset: int, limit: int) -> int:
        if offset == segment.base_offset:
            return 0
        position = view.read_ends.find(offset)
        if position is not None:
            return position
        found = segment.find(offset, limit)
        if found is None:
            raise CorruptBatch(f"{segment.path}: no batch holds offset {offset}")
        return found[0]
