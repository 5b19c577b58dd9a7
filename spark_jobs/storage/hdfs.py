"""Tables on HDFS, through a client without a JVM."""

import io
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, Self, cast

from hdfs_native import Client, FileStatus, FileWriter, WriteOptions
from typing_extensions import Buffer

from spark_jobs.errors import InvalidOption, StorageFailed
from spark_jobs.storage.table_store import StoredFile, is_inside

_URI: Final = re.compile(r"(hdfs://[^/]+)/+(.+?)/*", re.DOTALL | re.IGNORECASE)
_FAILURES: Final = (OSError, RuntimeError)
"""All errors that the client raises."""


class HdfsStore:
    """A folder of HDFS. Files are created atomically by renaming a complete temporary file.

    The name node executes renames one at a time and persists each before it answers. A rename
    without replacement fails if the name exists. The user comes from `HADOOP_USER_NAME` or a
    Kerberos ticket, and name services from `HADOOP_CONF_DIR`.
    """

    def __init__(self, client: Client, authority: str, folder: str) -> None:
        self._client = client
        self._authority = authority
        self._folder = folder
        self.uri = f"{authority}{folder}"

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """The store at `hdfs://HOST:PORT/PATH`; sends no request.

        Raises:
            InvalidOption: the URI has no folder.
        """
        found = _URI.fullmatch(uri)
        if found is None or not is_inside(found[2]):
            raise InvalidOption(f"{uri!r} is not a folder; allowed is hdfs://HOST:PORT/PATH")
        try:
            client = Client(found[1])
        except _FAILURES as error:
            raise InvalidOption(f"{uri}: {_reason(error)}") from error
        return cls(client, found[1], f"/{found[2]}")

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """See `TableStore`."""
        folder, _, name = self._at(path).rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        with self._failures(path):
            self._write(temporary, data)
            try:
                return self._rename(temporary, self._at(path), data)
            finally:
                self._client.delete(temporary)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See `TableStore`."""
        file = self._at(path)
        with self._failures(path):
            stream = _Stream(self._client.create(file, _NEW))
        try:
            yield cast("BinaryIO", stream)
            with self._failures(path):
                stream.finish()
        except BaseException:
            with suppress(*_FAILURES):
                self._client.delete(file)
            raise

    def read(self, path: str) -> bytes:
        """See `TableStore`."""
        try:
            return self._client.read(self._at(path)).read()
        except FileNotFoundError:
            raise
        except _FAILURES as error:
            raise self._failed(path, error) from error

    def list(self, folder: str) -> Iterator[StoredFile]:
        """See `TableStore`."""
        for status in self._entries(self._at(folder)):
            path = status.path.removeprefix(f"{self._folder}/")
            if status.isdir:
                yield from self.list(path)
            else:
                yield StoredFile(path, status.length, status.modification_time / 1_000)

    def folders(self, folder: str) -> Sequence[str]:
        """See `TableStore`."""
        entries = self._entries(self._at(folder))
        return sorted(entry.path.rpartition("/")[2] for entry in entries if entry.isdir)

    def delete(self, path: str) -> None:
        """See `TableStore`."""
        with self._failures(path):
            self._client.delete(self._at(path), recursive=True)

    def url(self, path: str) -> str:
        """See `TableStore`."""
        return f"{self._authority}{self._at(path)}"

    def _at(self, path: str) -> str:
        assert is_inside(path), path
        return f"{self._folder}/{path}"

    def _write(self, file: str, data: bytes) -> None:
        stream = _Stream(self._client.create(file, _NEW))
        stream.write(data)
        stream.finish()

    def _rename(self, temporary: str, file: str, data: bytes) -> bool:
        """Whether this call gave the file its name.

        A client repeats a rename whose response was lost, and gets an error, because the source no
        longer exists. The same happens if the temporary file was deleted. The file's content
        decides.
        """
        try:
            self._client.rename(temporary, file, overwrite=False)
        except FileExistsError:
            return False
        except _FAILURES:
            if self._exists(temporary) or not self._exists(file):
                raise
            return self._client.read(file).read() == data
        return True

    def _exists(self, file: str) -> bool:
        try:
            self._client.get_file_info(file)
        except FileNotFoundError:
            return False
        return True

    def _entries(self, folder: str) -> Sequence[FileStatus]:
        """The direct entries of a folder; none if it was deleted meanwhile."""
        with self._failures(folder.removeprefix(f"{self._folder}/")):
            with suppress(FileNotFoundError):
                return list(self._client.list_status(folder))
            return []

    @contextmanager
    def _failures(self, path: str) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            raise self._failed(path, error) from error

    def _failed(self, path: str, error: Exception) -> StorageFailed:
        return StorageFailed(f"{self.url(path)}: {_reason(error)}")


class _Stream(io.RawIOBase):
    """A file that is being written, with `tell` for Parquet writers."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Buffer) -> int:
        written = self._writer.write(data)
        self._written += written
        return written

    def finish(self) -> None:
        """Close the file; its bytes are on the data nodes' disks, its length on the name node."""
        if self._written:
            self._writer.hsync()
        self._writer.close()


_NEW: Final = WriteOptions(overwrite=False, create_parent=True)


def _reason(error: Exception) -> str:
    """The first line; the others are the server's stack trace."""
    return str(error).partition("\n")[0] or type(error).__name__
