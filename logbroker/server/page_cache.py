"""Whether bytes of a file are in the page cache, and how to bring them there.

`sendfile` blocks while a cold page is read, and on the loop's thread that would stall every
client (KAFKA-7504). So the loop asks first, and has cold spans read on a thread beside it.
"""

import errno
import os
from typing import Final

from logbroker.storage.span import FileSpan

PROBE_STEP_BYTES: Final = 128 * 1024
"""Linux reads ahead in windows of this size, so one page tells for its neighbours."""

_CAN_PROBE: Final = hasattr(os, "RWF_NOWAIT")
_NOT_CACHED: Final = (errno.EAGAIN,)


def is_warm(span: FileSpan) -> bool:
    """Whether `sendfile` of the span would find its pages; true where the kernel cannot tell."""
    if not _CAN_PROBE:
        return True
    end = span.position + span.length
    fd = span.file.fileno()
    return all(
        _is_page_warm(fd, position)
        for position in (*range(span.position, end, PROBE_STEP_BYTES), end - 1)
    )


def warm(span: FileSpan) -> None:
    """Read the span once, so that its pages are cached; blocks as long as the disk needs.

    Raises:
        OSError: the disk does not give the bytes.
    """
    scratch = bytearray(min(span.length, PROBE_STEP_BYTES))
    end = span.position + span.length
    for position in range(span.position, end, len(scratch)):
        os.preadv(span.file.fileno(), [scratch], position)


_probe_byte = bytearray(1)


def _is_page_warm(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [_probe_byte], position, os.RWF_NOWAIT)
    except OSError as error:
        # Some file systems refuse the flag; they give no answer, and none is no reason to wait.
        return error.errno not in _NOT_CACHED
    return True
