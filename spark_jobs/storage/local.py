"""Tables in a folder of this machine, or one that machines share by NFS."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from spark_jobs.errors import StorageFailed, UnsupportedStorage
from spark_jobs.storage.table_store import StoredFile, is_inside

_WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems without hard links: FAT, SMB, mounted object stores."""


class LocalStore:
    """A folder. Files are created atomically by linking a complete temporary file.

    `link()` is atomic on NFS, too, where `O_EXCL` or a rename without replacement may not be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.uri = f"file://{folder}"

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """See `TableStore`."""
        file = self._at(path)
        with self._failures(path):
            _make_folders(file.parent)
            temporary = file.parent / f".{file.name}.{uuid.uuid4().hex}.tmp"
            try:
                _write(temporary, data)
                created = _link(temporary, file)
            finally:
                temporary.unlink(missing_ok=True)
            # Also if another caller created it: its file must be durable, too.
            self._flush_folders(file.parent)
        return created

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See `TableStore`."""
        file = self._at(path)
        with self._failures(path):
            _make_folders(file.parent)
            stream = file.open("xb")
        try:
            with stream:
                yield stream
                with self._failures(path):
                    stream.flush()
                    os.fsync(stream.fileno())
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        with self._failures(path):
            self._flush_folders(file.parent)

    def read(self, path: str) -> bytes:
        """See `TableStore`."""
        try:
            return self._at(path).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._failed(path, error) from error

    def list(self, folder: str) -> Iterator[StoredFile]:
        """See `TableStore`."""
        with self._failures(folder):
            yield from self._list(self._at(folder))

    def folders(self, folder: str) -> Sequence[str]:
        """See `TableStore`."""
        with self._failures(folder), suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self._at(folder)) if entry.is_dir())
        return []

    def delete(self, path: str) -> None:
        """See `TableStore`."""
        file = self._at(path)
        with self._failures(path), suppress(FileNotFoundError):
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink()

    def url(self, path: str) -> str:
        """See `TableStore`."""
        return f"file://{self._at(path)}"

    def _at(self, path: str) -> Path:
        assert is_inside(path), path
        return self._folder / path

    def _list(self, folder: Path) -> Iterator[StoredFile]:
        """The files of a folder; files deleted meanwhile are omitted."""
        with suppress(FileNotFoundError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._list(Path(entry))
                    continue
                with suppress(FileNotFoundError):
                    stat = entry.stat()
                    path = Path(entry).relative_to(self._folder).as_posix()
                    yield StoredFile(path, stat.st_size, stat.st_mtime)

    def _flush_folders(self, folder: Path) -> None:
        """Make the entries of the folder, and its own up to the store's root, durable.

        All levels each time, because a process may have died after creating one and before flushing
        it; flushing a clean folder is cheap.
        """
        while True:
            _flush_folder(folder)
            if folder == self._folder:
                return
            folder = folder.parent

    @contextmanager
    def _failures(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(path, error) from error

    def _failed(self, path: str, error: OSError) -> StorageFailed:
        return StorageFailed(f"{self.url(path)}: {error.strerror or error}")


def _make_folders(folder: Path) -> None:
    """Create the folder and its parents, each durable in its parent."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(file: Path, data: bytes) -> None:
    with file.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _link(temporary: Path, file: Path) -> bool:
    """Whether this call gave the file its name.

    If the response is lost, an NFS client repeats its request and gets an error, because the name
    now exists. The link count of the temporary file shows who created it, see link(2) and open(2).
    """
    try:
        os.link(temporary, file)
    except FileExistsError:
        return temporary.stat().st_nlink > 1
    except OSError as error:
        if error.errno in _WITHOUT_LINKS:
            raise UnsupportedStorage(
                f"{file.parent} is on a file system without hard links, where two concurrent runs "
                "could both commit; use a local disk, NFS or HDFS"
            ) from error
        if temporary.stat().st_nlink > 1:
            return True
        raise
    return True
