"""The open `.log` file of a segment, and whether the page cache holds a part of it.

`sendfile` blocks while a page that is not cached is read from disk. On the event loop that
would stall every client (KAFKA-7504), so the broker checks `is_cached` first and calls
`load_into_cache` on another thread.
"""

import errno
import os
from pathlib import Path
from typing import Final

from logbroker.records.file_span import FileSpan

PROBE_STEP_BYTES: Final = 128 * 1024
"""Linux reads ahead in windows of this size, so one cached page stands for its window."""

_CAN_PROBE: Final = hasattr(os, "RWF_NOWAIT")

_probe_byte = bytearray(1)


class SegmentFile:
    """A descriptor that stays open as long as this object is referenced.

    A span that is being sent outlives the deletion of its segment by retention. The disk
    space of a deleted file is freed when its last reader finishes.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, which only this object may close."""
        return self._descriptor


def is_cached(span: FileSpan) -> bool:
    """Return whether the page cache holds the span; true if the kernel cannot say."""
    if not _CAN_PROBE:
        return True
    end = span.position + span.length
    descriptor = span.file.fileno()
    return all(
        _is_page_cached(descriptor, position)
        for position in (*range(span.position, end, PROBE_STEP_BYTES), end - 1)
    )


def load_into_cache(span: FileSpan) -> None:
    """Read the span into the page cache; blocks until the disk has answered.

    Raises:
        OSError: the disk refused the read.
    """
    scratch = bytearray(min(span.length, PROBE_STEP_BYTES))
    for position in range(span.position, span.position + span.length, len(scratch)):
        os.preadv(span.file.fileno(), [scratch], position)


def _is_page_cached(descriptor: int, position: int) -> bool:
    try:
        os.preadv(descriptor, [_probe_byte], position, os.RWF_NOWAIT)
    except OSError as error:
        # File systems that do not support the flag report other errors: do not wait then.
        return error.errno != errno.EAGAIN
    return True
