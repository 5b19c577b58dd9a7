"""Whether a file was replaced or written since it was read."""

from pathlib import Path

FileVersion = tuple[int, int, int]
"""Inode, modification time in nanoseconds, and size."""


def file_version(path: Path) -> FileVersion | None:
    """Return what changes when a file is replaced or written; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
