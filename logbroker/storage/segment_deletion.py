"""Segments that retention takes: what its rules look at, and the files after that."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from logbroker.storage.retention import Reason, SegmentExtent
from logbroker.storage.segment import DELETED_SUFFIX, LogSegment


class Deleted(NamedTuple):
    """A segment that retention took: its files are renamed already and may be removed."""

    base_offset: int
    size_bytes: int
    reason: Reason
    paths: list[Path]


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
