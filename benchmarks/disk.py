"""What the disk alone does: writes into the page cache, and appends that are flushed."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 2**30
"""A segment; at this size the file is begun anew, so that a measurement stays in memory."""


def written_to_page_cache(folder: Path, pieces: Sequence[bytes], seconds: float) -> float:
    """Bytes/s of `writev` calls that append `pieces` to a file."""
    size = sum(map(len, pieces))
    return size * _repeat(folder, size, lambda file: os.writev(file, pieces), seconds)


def appended_and_flushed(folder: Path, pieces: Sequence[bytes], seconds: float) -> float:
    """How often a second `pieces` are appended to a file and made durable."""

    def append_and_flush(file: int) -> None:
        os.writev(file, pieces)
        os.fdatasync(file)

    return _repeat(folder, sum(map(len, pieces)), append_and_flush, seconds)


def _repeat(folder: Path, size: int, append: Callable[[int], object], seconds: float) -> float:
    os.sync()
    with tempfile.TemporaryFile(dir=folder) as file:
        count, position = 0, 0
        start = time.perf_counter()
        while (elapsed_s := time.perf_counter() - start) < seconds:
            append(file.fileno())
            count += 1
            position += size
            if position > FILE_BYTES_MAX:
                os.ftruncate(file.fileno(), 0)
                os.lseek(file.fileno(), 0, os.SEEK_SET)
                position = 0
        return count / elapsed_s
