"""Writes to files: durable, atomic, or of many buffers at once."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from logbroker.records.batch import Buffer

IOV_MAX: Final = 1024
"""The maximum number of buffers of one `pwritev` on Linux."""

WRITE_BYTES_MAX: Final = 1024 * 1024
"""For a longer write, Linux takes huge pages for its cache. The memory of a virtual machine may
not have any, and each is then requested from the host."""

JOINED_BYTES_MAX: Final = 1024
"""Below this mean size, joining the buffers is cheaper than passing each to the kernel:
102 us instead of 121 us for a thousand buffers of 270 bytes."""


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable: created, renamed and removed files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write and flush a file; its name is durable after `sync_directory` of its folder.

    A new file gets `mode` without the bits of the process's umask.
    """
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the content of `path` atomically and durably.

    A crash may leave `<name>.tmp` behind; the next replacement overwrites it.
    """
    temporary = path.with_name(path.name + ".tmp")
    write_durably(temporary, content, mode)
    temporary.replace(path)
    sync_directory(path.parent)


def write_all(descriptor: int, buffers: Sequence[Buffer], position: int, size: int) -> None:
    """Write all `buffers`, `size` bytes in total, at `position` of a file.

    Raises:
        OSError: the write failed; an unknown part of the bytes is in the file.
    """
    if size < len(buffers) * JOINED_BYTES_MAX:
        _write_rest(descriptor, memoryview(b"".join(buffers)), position)
        return
    for vector in _vectors(buffers, size):
        position = _write_vector(descriptor, vector, position)


def _vectors(buffers: Sequence[Buffer], size: int) -> Iterator[Sequence[Buffer]]:
    """Split buffers of `size` bytes in total into those of one call each."""
    if size <= WRITE_BYTES_MAX and len(buffers) <= IOV_MAX:
        yield buffers
        return
    vector: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if vector and (size + len(buffer) > WRITE_BYTES_MAX or len(vector) == IOV_MAX):
            yield vector
            vector, size = [], 0
        vector.append(buffer)
        size += len(buffer)
    if vector:
        yield vector


def _write_vector(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write at most `IOV_MAX` buffers and return the position behind them."""
    size = sum(map(len, buffers))
    written = os.pwritev(descriptor, buffers, position)
    if written < size:
        # A short write has no error code; writing the rest succeeds or raises one.
        _write_rest(descriptor, memoryview(b"".join(buffers))[written:], position + written)
    return position + size


def _write_rest(descriptor: int, rest: memoryview, position: int) -> None:
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest = rest[written:]
        position += written
