"""The open `.log` file of a segment, and whether the page cache holds a part of it.

`sendfile` blocks while a page that is not cached is read from disk. On the event loop that
would stall every client (KAFKA-7504), so the broker checks `is_cached` first and calls
`load_into_cache` on another thread.
"""

import errno
import math
import os
import time
from pathlib import Path
from typing import Final

from logbroker.records.file_span import FileSpan

PROBE_STEP_BYTES: Final = 128 * 1024
"""Linux reads ahead in windows of this size, so one cached page stands for its window."""

SMALL_SPAN_BYTES: Final = 4 * 1024
COPIED_BYTES_MAX: Final = 64 * 1024
"""Of one response."""

READ_RETRY_S: Final = 10.0
"""How long a segment that could not be read is not read again. Each failed read costs the reader
its connection, and with it the other partitions of its Fetch."""

_CAN_PROBE: Final = hasattr(os, "RWF_NOWAIT")

_probe_byte = bytearray(1)


class SegmentFile:
    """A descriptor that stays open as long as this object is referenced.

    A span that is being sent outlives the deletion of its segment by retention. The disk
    space of a deleted file is freed when its last reader finishes.
    """

    __slots__ = ("_descriptor", "_failed_s")

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._failed_s = -math.inf
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, which only this object may close."""
        return self._descriptor

    def record_failure(self) -> None:
        """Let `check` fail for a while, because a read has failed."""
        self._failed_s = time.monotonic()

    def check(self) -> None:
        """Do nothing, unless a read has failed in the last `READ_RETRY_S`.

        Raises:
            OSError: a read has failed.
        """
        if time.monotonic() < self._failed_s + READ_RETRY_S:
            raise OSError(errno.EIO, "the disk failed to read this segment")


def drop_from_cache(path: Path) -> None:
    """Drop the cached pages of a file that are clean, so that later reads see what the disk has.

    Linux counts pages as clean that it could not write. Without this, a recovery after a failed
    flush would find batches intact that a power cut loses.
    """
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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


def copy_small_spans(parts: list[bytes | FileSpan]) -> list[bytes | FileSpan]:
    """Replace small spans by their bytes, up to `COPIED_BYTES_MAX`, if the page cache has them.

    One read and one send take less than two probes, `sendfile` and a send before and after it; and
    a client is woken once for the response instead of for each part.
    """
    left = COPIED_BYTES_MAX
    copied: list[bytes | FileSpan] = []
    for part in parts:
        data = None
        if isinstance(part, FileSpan) and part.length <= min(left, SMALL_SPAN_BYTES):
            data = _read_cached(part)
        if data is None:
            copied.append(part)
        else:
            copied.append(data)
            left -= len(data)
    return copied


def _read_cached(span: FileSpan) -> bytes | None:
    """Return the bytes of a span, or None if the page cache may not hold all of them."""
    if not _CAN_PROBE:
        return None
    data = bytearray(span.length)
    try:
        count = os.preadv(span.file.fileno(), [data], span.position, os.RWF_NOWAIT)
    except OSError:
        return None  # as with `is_cached`, the send of the span finds out why
    return bytes(data) if count == span.length else None


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
