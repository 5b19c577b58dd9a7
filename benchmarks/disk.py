"""Rates of the disk alone: writes to the page cache, and flushed appends."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 2**30
"""The size of a segment. The file is then truncated, so that it stays in the page cache."""


def measure_page_cache(folder: Path, pieces: Sequence[bytes], seconds: float) -> float:
    """Return the bytes/s of `writev` calls that append `pieces` to a file."""
    size = sum(map(len, pieces))
    return size * _repeat(folder, size, lambda file: os.writev(file, pieces), seconds)


def measure_flushes(folder: Path, pieces: Sequence[bytes], seconds: float) -> float:
    """Return how often per second `pieces` are appended to a file and flushed."""

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
