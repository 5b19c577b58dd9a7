"""Parts of log files: reads of the log return them, and `sendfile` sends them."""

from dataclasses import dataclass
from typing import Protocol


class OpenFile(Protocol):
    """A file that stays open as long as the object is referenced."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def record_failure(self) -> None:
        """Record that a read of the file has failed."""


@dataclass(frozen=True, slots=True)
class FileSpan:
    """`length` bytes of `file` from `position` on: whole batches below the high watermark.

    The bytes never change. The file stays open while the span exists, even if retention
    deletes the file.
    """

    file: OpenFile
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class LogSpan(FileSpan):
    """The result of a read: a span, and the offset of the record that follows it."""

    next_offset: int
