"""Segments that compaction writes, and the steps by which they replace others.

A cleaned segment is written as `<base offset>.log.cleaned` with both indexes. Then its files are
renamed to `*.swap`, the `.log` file last: from then on it replaces the segments between its first
and its last offset, also after a crash. Those are renamed to `*.deleted`, and the suffix `.swap`
is removed, from the `.log` file last.

A crash leaves `*.cleaned`, or `*.swap` without a `.log.swap`: both are removed at the next start.
If there is a `.log.swap`, the replacement is completed.

Source: Kafka, `UnifiedLog.replaceSegments`, `LogLoader.completeSwapOperations`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from logbroker.errors import CorruptBatch
from logbroker.records.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, read_header
from logbroker.storage.batch_scan import headers
from logbroker.storage.file_writes import sync_directory, write_all
from logbroker.storage.offset_index import INDEX_INTERVAL_BYTES, OffsetIndex
from logbroker.storage.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
    file_name,
)
from logbroker.storage.time_index import TimeIndex

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

READ_BYTES: Final = 256 * 1024
"""One read of a segment."""

WRITE_BYTES: Final = 1024 * 1024

_INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_SEGMENT_SUFFIXES: Final = (*_INDEX_SUFFIXES, LOG_SUFFIX)
"""In the order of renaming."""


class CleanedSegment:
    """The files of a segment that is being written; `finish` makes them durable."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        """Create the files.

        Raises:
            OSError: a disk operation failed.
        """
        self.base_offset = base_offset
        self.size_bytes = 0
        self.is_replacing = False
        """Whether the files of the replaced segments may be renamed."""
        self._folder = folder
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._bytes_since_index = 0
        self._newest = (-1, base_offset)
        names = [_name(base_offset, suffix, CLEANED_SUFFIX) for suffix in _SEGMENT_SUFFIXES]
        self._offset_index = OffsetIndex(folder / names[0], base_offset)
        self._time_index = TimeIndex(folder / names[1], base_offset)
        self._offset_index.clear()
        self._time_index.clear()
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = os.open(folder / names[2], flags, 0o644)

    def add(self, header: BatchHeader, batch: bytes) -> None:
        """Add a batch with the same first and last offset as `header`."""
        newest_ms = read_header(batch).max_timestamp
        if newest_ms > self._newest[0]:
            self._newest = newest_ms, header.last_offset
        if self._bytes_since_index > INDEX_INTERVAL_BYTES:
            self._offset_index.append(header.last_offset, self.size_bytes)
            self._time_index.append_if_greater(*self._newest)
            self._bytes_since_index = 0
        self._bytes_since_index += len(batch)
        self.size_bytes += len(batch)
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= WRITE_BYTES:
            self._write()

    def finish(self, modified_ns: int) -> None:
        """Write and flush everything; the file gets the time of modification of the original."""
        if self._newest[0] >= 0:
            self._time_index.append_if_greater(*self._newest)
        self._write()
        os.utime(self._descriptor, ns=(modified_ns, modified_ns))
        os.fsync(self._descriptor)
        for index in (self._offset_index, self._time_index):
            index.sync()
        self.close()

    def close(self) -> None:
        """Close the files."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        self._offset_index.close()
        self._time_index.close()

    def remove(self) -> None:
        """Close and remove the files, in whichever step they are."""
        self.close()
        for suffix in reversed(_SEGMENT_SUFFIXES):
            for step in (SWAP_SUFFIX, CLEANED_SUFFIX):
                _path(self._folder, self.base_offset, suffix, step).unlink(missing_ok=True)

    def rename_to_swap(self) -> None:
        """Rename the files to `*.swap`, the `.log` file last."""
        for suffix in _SEGMENT_SUFFIXES:
            cleaned = _path(self._folder, self.base_offset, suffix, CLEANED_SUFFIX)
            cleaned.rename(_path(self._folder, self.base_offset, suffix, SWAP_SUFFIX))

    def replace(self, replaced: Sequence[LogSegment], now_ms: int) -> tuple[LogSegment, list[Path]]:
        """Replace segments by this one; returns it, and the renamed files of the others.

        The producer snapshot at the base offset stays.
        """
        self.is_replacing = True
        deleted = [
            path.rename(path.with_name(path.name + DELETED_SUFFIX))
            for segment in replaced
            for path in segment.paths
            if path.exists() and not self._is_own_snapshot(path)
        ]
        for suffix in _SEGMENT_SUFFIXES:
            swap = _path(self._folder, self.base_offset, suffix, SWAP_SUFFIX)
            swap.rename(_path(self._folder, self.base_offset, suffix))
        return LogSegment(self._folder, self.base_offset, self.size_bytes, now_ms), deleted

    def _is_own_snapshot(self, path: Path) -> bool:
        return path.name == file_name(self.base_offset, SNAPSHOT_SUFFIX)

    def _write(self) -> None:
        position = self.size_bytes - self._pending_bytes
        write_all(self._descriptor, self._pending, position, self._pending_bytes)
        self._pending, self._pending_bytes = [], 0
        for index in (self._time_index, self._offset_index):
            index.write()
            index.publish()


def read_batches(
    segment: LogSegment, pause: Callable[[], None]
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield each batch of a rolled segment; calls `pause` before each.

    Raises:
        CorruptBatch: the segment does not consist of whole batches.
        OSError: the read failed.
    """
    descriptor, size = segment.file.fileno(), segment.size_bytes
    chunk, start = b"", 0
    position = 0
    while position < size:
        at = position - start
        header = read_header(chunk, at) if at + HEADER_BYTES <= len(chunk) else None
        if header is None or at + header.size > len(chunk):
            wanted = READ_BYTES if header is None else max(header.size, READ_BYTES)
            if start == position and len(chunk) >= min(wanted, size - position):
                raise CorruptBatch(f"{segment.path.name} ends inside a batch, at {position}")
            chunk, start = os.pread(descriptor, min(wanted, size - position), position), position
            if not chunk:
                raise CorruptBatch(f"{segment.path.name} ends at {position}, expected {size}")
            continue
        if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptBatch(f"{segment.path.name} has no batch at {position}")
        pause()
        yield header, chunk[at : at + header.size]
        position += header.size


def complete_swaps(folder: Path) -> None:
    """Complete or undo the replacements that a crash interrupted."""
    steps = [path for path in folder.iterdir() if path.suffix in {CLEANED_SUFFIX, SWAP_SUFFIX}]
    if not steps:
        return
    for path in steps:
        if path.suffix == CLEANED_SUFFIX:
            path.unlink()
    swapped = {path.name for path in steps if path.suffix == SWAP_SUFFIX}
    for name in sorted(name for name in swapped if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        _complete_swap(folder, int(name.partition(".")[0]))
    for path in _remaining(folder, swapped):
        path.unlink()
    sync_directory(folder)


def _complete_swap(folder: Path, base_offset: int) -> None:
    log = _path(folder, base_offset, LOG_SUFFIX, SWAP_SUFFIX)
    end_offset = _end_offset(log, base_offset)
    for path in folder.glob(f"*{LOG_SUFFIX}"):
        if base_offset < int(path.stem) < end_offset:
            for suffix in (*_SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                _path(folder, int(path.stem), suffix).unlink(missing_ok=True)
    for suffix in _SEGMENT_SUFFIXES:
        swap = _path(folder, base_offset, suffix, SWAP_SUFFIX)
        if swap.exists():
            swap.replace(_path(folder, base_offset, suffix))


def _end_offset(log: Path, base_offset: int) -> int:
    end_offset = base_offset
    with log.open("rb", buffering=0) as file:
        for _, header in headers(file.fileno(), 0, log.stat().st_size):
            end_offset = header.next_offset
    return end_offset


def _remaining(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    return (path for name in names if (path := folder / name).exists())


def _path(folder: Path, base_offset: int, suffix: str, step: str = "") -> Path:
    return folder / _name(base_offset, suffix, step)


def _name(base_offset: int, suffix: str, step: str) -> str:
    return file_name(base_offset, suffix) + step
