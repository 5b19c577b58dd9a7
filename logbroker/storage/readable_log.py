"""The half of a partition that any thread may use: what is flushed, read and looked up."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from logbroker.errors import CorruptBatch, OffsetOutOfRange, StorageFailed
from logbroker.storage.log_view import LogOffsetMetadata, LogView, TimestampOffset
from logbroker.storage.segment import LogSegment
from logbroker.storage.segment_file import LogSpan

Answer = TypeVar("Answer")


SLOTS: Final = 61
"""Remembered read positions of a log, about 500 bytes; a prime, so that equal strides spread."""


class ReadPositions:
    """A small cache of (offset, position) pairs that threads share without a lock.

    The position of an offset never changes, so a pair is always valid. A lost pair costs a
    search of the offset index.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: list[tuple[int, int] | None] = [None] * SLOTS

    def store(self, offset: int, position: int) -> None:
        """Store that the batch at `position` of its segment begins with `offset`."""
        self._slots[offset % SLOTS] = offset, position

    def find(self, offset: int) -> int | None:
        """Return the position of `offset`, if a recent read ended there."""
        pair = self._slots[offset % SLOTS]
        return pair[1] if pair is not None and pair[0] == offset else None


class ReadableLog:
    """Segments below the high watermark, read without a lock while one thread writes.

    Every question is answered from one `LogView`, which the writer replaces as a whole.
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
        """The offset that the next record gets; staged records are counted."""
        self._view = LogView(segments, start_offset, end)
        self._read_ends = ReadPositions()

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """All segments, oldest first; the last one is active."""
        return self._view.segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._view.start_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which all is flushed and may be read."""
        return self._view.end.offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, as written."""
        return sum(segment.size_bytes for segment in self._view.segments)

    def read(self, offset: int, bytes_max: int, *, whole_batch: bool) -> LogSpan | None:
        """Whole batches from the one that holds `offset`, of at most `bytes_max` together.

        None when nothing from `offset` on is below the high watermark, or when the first
        batch is larger than `bytes_max`; with `whole_batch` that batch is given all the
        same (KIP-74: a consumer must not get stuck at it).

        Raises:
            OffsetOutOfRange: below the log start offset or above the log end offset.
            StorageFailed: the disk refused.
        """
        return self._look_up(lambda view: self._span(view, offset, bytes_max, whole_batch))

    def is_before_last_segment(self, offset: int) -> bool:
        """Whether a later segment than that of `offset` is readable: a read ends before it."""
        view = self._view
        if offset >= view.end.offset:
            return False
        return view.segment_of(offset).base_offset < view.end.base_offset

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record that is not older than this, below the high watermark.

        Raises:
            CorruptBatch: a compressed batch does not decompress.
            StorageFailed: the disk refused.
        """
        return self._look_up(lambda view: view.offset_for_time(timestamp_ms))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record of the largest timestamp below the high watermark.

        Raises: as `offset_for_time`.
        """
        return self._look_up(lambda view: view.offset_of_max_timestamp())

    def _look_up(self, question: Callable[[LogView], Answer]) -> Answer:
        view = self._view
        try:
            return question(view)
        except FileNotFoundError as cause:
            if view.segments is self._view.segments:
                raise StorageFailed(f"{self.folder.name}: {cause}") from cause
            # Retention renamed a file after the view was taken; the new view lacks it.
            return self._look_up(question)
        except OSError as cause:
            raise StorageFailed(f"{self.folder.name}: read failed: {cause}") from cause

    def _span(
        self, view: LogView, offset: int, bytes_max: int, whole_batch: bool
    ) -> LogSpan | None:
        if not view.start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.folder.name}: offset {offset}; "
                f"there are {view.start_offset} to {self.log_end_offset}"
            )
        if offset >= view.end.offset:
            return None
        segment = view.segment_of(offset)
        limit = view.readable_bytes(segment)
        start = self._position_of(segment, offset, limit)
        end, next_offset = self._end_of_read(view, segment, start, start + bytes_max, whole_batch)
        return LogSpan(segment.file, start, end - start, next_offset) if end > start else None

    def _end_of_read(
        self, view: LogView, segment: LogSegment, start: int, end: int, whole_batch: bool
    ) -> tuple[int, int]:
        """Where a read ends: the position, and the offset of the record behind it."""
        limit = view.readable_bytes(segment)
        if end >= limit:
            if segment.base_offset != view.end.base_offset:
                return limit, view.base_offset_behind(segment)
            self._read_ends.store(view.end.offset, limit)
            return limit, view.end.offset
        position, header = segment.batch_across(start, end, limit)
        next_offset = header.base_offset
        if position == start and whole_batch:
            position, next_offset = start + header.size, header.next_offset
        self._read_ends.store(next_offset, position)
        return position, next_offset

    def _position_of(self, segment: LogSegment, offset: int, limit: int) -> int:
        if offset == segment.base_offset:
            return 0
        position = self._read_ends.find(offset)
        if position is not None:
            return position
        found = segment.find(offset, limit)
        if found is None:
            raise CorruptBatch(f"{segment.path}: no batch holds offset {offset}")
        return found[0]
