"""Pieces of segment files that go to consumers without passing through the process."""

from dataclasses import dataclass

from logbroker.storage.segment_file import SegmentFile


@dataclass(frozen=True, slots=True)
class FileSpan:
    """`length` bytes of `file` from `position` on: whole batches, all of them flushed.

    Its bytes never change: they lie below the high watermark. The file's descriptor stays
    open as long as the span is held, even when retention deletes the file meanwhile.
    """

    file: SegmentFile
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class LogSpan(FileSpan):
    """What a log gives to a reader."""

    next_offset: int
    """Of the record behind the last one in it."""
