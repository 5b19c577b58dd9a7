"""The interface of a store of tables."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple, Protocol


class StoredFile(NamedTuple):
    """A file in the listing of a store."""

    path: str
    """Relative to the store, separated by `/`."""

    size: int
    """Bytes."""

    modified_s: float
    """Since 1970, by the clock of the store."""


class TableStore(Protocol):
    """A folder that processes on many machines read and write concurrently.

    Paths are relative to it, separated by `/`, and always inside it. A store is not sent to other
    processes: they open it by its `uri`.

    Raises:
        StorageFailed: by every method, if the store fails.
    """

    uri: str

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with all its bytes atomically; whether this call created it.

        Of concurrent callers exactly one creates it. It is durable if the result is True. A process
        that dies meanwhile leaves the whole file or none, and possibly a temporary file in the same
        folder, whose name starts with a dot and ends with `.tmp`.
        """

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file for writing; durable when the context ends, deleted after an error.

        Its path must not be published before. An existing file is an error.
        """

    def read(self, path: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def list(self, folder: str) -> Iterable[StoredFile]:
        """The files in a folder and its subfolders, unordered; none if it does not exist."""

    def folders(self, folder: str) -> Sequence[str]:
        """The names of the direct subfolders, sorted; none if the folder does not exist."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content; a missing one is not an error."""

    def url(self, path: str) -> str:
        """The file's URL for Spark, not percent-encoded, as in Hadoop's paths."""


def is_inside(path: str) -> bool:
    """Whether a path is normalised and leads to something inside a store."""
    parts = PurePosixPath(path).parts
    return (
        "/".join(parts) == path
        and path not in {"", "/"}
        and ".." not in parts
        and "\\" not in path
        and path.isprintable()
    )
