"""Files that are either the old ones or the new ones, whatever happens in between."""

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: those created, renamed or removed so far."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file whose name becomes durable with its directory's next sync."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` a new content, durably and all at once.

    A crash may leave `<name>.tmp` behind; the next replacement overwrites it.
    """
    temporary = path.with_name(path.name + ".tmp")
    write_durably(temporary, content)
    temporary.replace(path)
    sync_directory(path.parent)
