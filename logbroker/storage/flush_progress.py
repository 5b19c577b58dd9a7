"""How far a log is written, and how far that is durable."""

from pathlib import Path
from threading import Lock

from logbroker.storage.file_writes import sync_directory
from logbroker.storage.log_view import LogOffsetMetadata
from logbroker.storage.segment import LogSegment


class FlushProgress:
    """The written end of a log and the flushed one, and the segments between them.

    `flush` runs on a thread of its own while the loop's thread calls everything else. The
    two share single attributes that are replaced as a whole; the order in which `flush`
    takes them makes them fit together.
    """

    def __init__(self, active: LogSegment, end: LogOffsetMetadata) -> None:
        self.written = end
        self.flushed = end
        self._segments: tuple[LogSegment, ...] = (active,)
        self._synced_before = active.base_offset
        self._names_changed = False
        self._flushing = Lock()

    def note_roll(self, segment: LogSegment) -> None:
        """A new segment is the active one; its files are created, not yet durable."""
        self._names_changed = True
        self._segments = (*self._segments, segment)
        self.written = LogOffsetMetadata(segment.base_offset, segment.base_offset, 0)

    def note_removal(self, kept: tuple[LogSegment, ...]) -> None:
        """Retention left only these segments."""
        self._segments = tuple(segment for segment in self._segments if segment in kept)

    def flush(self, folder: Path) -> LogOffsetMetadata:
        """Make durable what is written by now: its end. On any thread, one at a time.

        Raises:
            OSError: the disk refused; what is durable now is not known.
        """
        with self._flushing:
            # Taken before the segments: they hold at least what lies below this end.
            written = self.written
            if written is not self.flushed:
                self._sync(self._segments, folder)
                self.flushed = written
            return written

    def settle(self) -> LogOffsetMetadata:
        """Let go of segments that are flushed whole: the flushed end."""
        self._segments = tuple(
            segment for segment in self._segments if segment.base_offset >= self._synced_before
        )
        return self.flushed

    def _sync(self, segments: tuple[LogSegment, ...], folder: Path) -> None:
        *rolled, active = segments
        for segment in rolled:
            segment.sync()
            # Nobody rebuilds the indexes of a segment that lies below the recovery point.
            segment.sync_indexes()
        active.sync()
        if self._names_changed:
            self._names_changed = False
            sync_directory(folder)
        self._synced_before = active.base_offset
