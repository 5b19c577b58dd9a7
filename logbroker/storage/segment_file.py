"""The open `.log` file of a segment."""

import os
from pathlib import Path


class SegmentFile:
    """A descriptor that stays open while anyone holds this object, and not longer.

    So a span handed to a connection outlives retention's deletion of the segment, and a
    deleted file gives its disk space back when the last reader lets go.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def fileno(self) -> int:
        """The descriptor, for `sendfile`, `pread` and the like; the owner alone closes it."""
        return self._descriptor
