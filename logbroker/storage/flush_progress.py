"""The written and the flushed end of a log."""

from pathlib import Path
from threading import Lock

from logbroker.storage.file_writes import sync_directory
from logbroker.storage.log_view import LogOffsetMetadata
from logbroker.storage.segment import LogSegment


class FlushProgress:
    """The written end of a log, the flushed end, and the segments between them.

    `flush` runs on a flush thread, all other methods on the loop's thread. They share
    attributes that are replaced atomically; `flush` reads them in an order that keeps them
    consistent.
    """

    def __init__(self, active: LogSegment, end: LogOffsetMetadata) -> None:
        self.written = end
        self.flushed = end
        self._segments: tuple[LogSegment, ...] = (active,)
        self._synced_before = active.base_offset
        self._names_changed = False
        self._flushing = Lock()

    def add_segment(self, segment: LogSegment) -> None:
        """Add the new active segment; its files are created and not durable yet."""
        self._names_changed = True
        self._segments = (*self._segments, segment)
        self.written = LogOffsetMetadata(segment.base_offset, segment.base_offset, 0)

    def retain_segments(self, kept: tuple[LogSegment, ...]) -> None:
        """Remove all segments other than `kept`, after retention."""
        self._segments = tuple(segment for segment in self._segments if segment in kept)

    def flush(self, folder: Path) -> LogOffsetMetadata:
        """Flush all written records and return their end; safe on any thread, one at a time.

        Raises:
            OSError: the flush failed; it is unknown which records are durable.
        """
        with self._flushing:
            # Read before the segments: they contain all records below this end.
            written = self.written
            if written is not self.flushed:
                self._sync(self._segments, folder)
                self.flushed = written
            return written

    def release_flushed(self) -> LogOffsetMetadata:
        """Drop the segments that are fully flushed and return the flushed end."""
        self._segments = tuple(
            segment for segment in self._segments if segment.base_offset >= self._synced_before
        )
        return self.flushed

    def _sync(self, segments: tuple[LogSegment, ...], folder: Path) -> None:
        *rolled, active = segments
        for segment in rolled:
            segment.sync()
            # Recovery does not rebuild indexes of segments below the recovery point.
            segment.sync_indexes()
        active.sync()
        if self._names_changed:
            self._names_changed = False
            sync_directory(folder)
        self._synced_before = active.base_offset
