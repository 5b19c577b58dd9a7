"""An immutable view of a log, for reads and lookups by time."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from logbroker.errors import CorruptBatch
from logbroker.records.batch import BatchHeader
from logbroker.records.record import first_record_at_or_after
from logbroker.storage.segment import LogSegment


class TimestampOffset(NamedTuple):
    """The result of a lookup by time, with the leader epoch of the record's batch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class LogOffsetMetadata(NamedTuple):
    """An offset, the base offset of its segment, and its position in the segment.

    It does not reference the segment, which would keep the space of a deleted file.

    Source: Kafka, `LogOffsetMetadata.java`.
    """

    offset: int
    base_offset: int
    position: int


SLOTS: Final = 61
"""Remembered read positions of a log, about 500 bytes; a prime, so that equal strides spread."""


class ReadPositions:
    """A small cache of (offset, position) pairs that threads share without a lock.

    The position of an offset does not change while its segment is not replaced, so a pair is
    always valid for the views that share the cache. A lost pair costs a search of the offset index.
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


class LogView(NamedTuple):
    """The segments in order, and the bounds of the readable records.

    It is immutable and replaced atomically, so any thread reads a consistent view without a
    lock. The last segment may be appended to meanwhile, after `end`.
    """

    segments: tuple[LogSegment, ...]
    start_offset: int
    end: LogOffsetMetadata
    """The high watermark."""
    read_ends: ReadPositions

    def segment_of(self, offset: int) -> LogSegment:
        """Return the segment of `offset`, which must not be below the first segment."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return segments[-1]
        return segments[bisect_right(segments, offset, key=_base_offset) - 1]

    def next_base_offset(self, segment: LogSegment) -> int:
        """Return the base offset of the following segment; `segment` must not be the last."""
        number = bisect_right(self.segments, segment.base_offset, key=_base_offset)
        return self.segments[number].base_offset

    def readable_bytes(self, segment: LogSegment) -> int:
        """Return the bytes of a segment below the high watermark."""
        end = self.end
        if segment.base_offset == end.base_offset:
            return end.position
        return segment.size_bytes if segment.base_offset < end.base_offset else 0

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record, in offset order, with at least this timestamp.

        Source: Kafka, `UnifiedLog.fetchOffsetByTimestamp`, but over all segments: the record
        with a segment's largest timestamp may be below the log start offset.
        """
        for segment in self._readable_segments():
            if segment.newest_timestamp_ms >= timestamp_ms:
                found = self._search(segment, timestamp_ms)
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp."""
        newest: tuple[int, int, LogSegment] | None = None
        for segment in self._readable_segments():
            if newest is None or segment.newest_timestamp_ms > newest[0]:
                found = self._newest_batch(segment)
                if found is not None and (newest is None or found[0] > newest[0]):
                    newest = (*found, segment)
        if newest is None:
            return None
        timestamp_ms, position, segment = newest
        _, header = next(segment.headers(position, self.readable_bytes(segment)))
        return self._record_in(segment, position, header, timestamp_ms)

    def _readable_segments(self) -> Iterator[LogSegment]:
        return (segment for segment in self.segments if self.readable_bytes(segment))

    def _search(self, segment: LogSegment, timestamp_ms: int) -> TimestampOffset | None:
        start = self._not_before_start(segment, segment.position_before_time(timestamp_ms))
        for position, header in segment.headers(start, self.readable_bytes(segment)):
            if header.max_timestamp >= timestamp_ms:
                found = self._record_in(segment, position, header, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _record_in(
        self, segment: LogSegment, position: int, header: BatchHeader, timestamp_ms: int
    ) -> TimestampOffset | None:
        batch = segment.read_batch(position, header)
        try:
            record = first_record_at_or_after(batch, timestamp_ms, self.start_offset)
        except CorruptBatch:
            # Consumers skip the batch, and a lookup must not fail because of it.
            offset = max(header.base_offset, self.start_offset)
            return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)
        if record is None:
            return None
        return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)

    def _newest_batch(self, segment: LogSegment) -> tuple[int, int] | None:
        """Return the largest readable timestamp and the position of its first batch."""
        limit = self.readable_bytes(segment)
        newest = self._newest_indexed(segment, limit)
        start = segment.position_before_time(newest[0] + 1) if newest else 0
        for position, header in segment.headers(self._not_before_start(segment, start), limit):
            timestamp_ms = header.max_timestamp
            is_newer = timestamp_ms > newest[0] if newest else timestamp_ms >= 0
            if is_newer and header.last_offset >= self.start_offset:
                newest = timestamp_ms, position
        return newest

    def _newest_indexed(self, segment: LogSegment, limit: int) -> tuple[int, int] | None:
        entry = segment.time_index.last_before(self.end.offset)
        if entry is None or entry.offset < self.start_offset:
            return None
        found = segment.find(entry.offset, limit)
        return (entry.timestamp_ms, found[0]) if found else None

    def _not_before_start(self, segment: LogSegment, position: int) -> int:
        if self.start_offset <= segment.base_offset:
            return position
        return max(position, segment.offset_index.position_at_or_before(self.start_offset))


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
