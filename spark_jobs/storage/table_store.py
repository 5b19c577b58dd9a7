"""What a table asks of the place where it is kept."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple, Protocol


class StoredFile(NamedTuple):
    """A file of a store, as a listing has it."""

    path: str
    """Relative to the store, with `/` between its parts."""

    size: int
    """Bytes."""

    modified_s: float
    """Since 1970, by the clock of the store."""


class TableStore(Protocol):
    """A folder that many processes on many machines read and write at once.

    Paths are relative to it, with `/` between their parts, and never lead out of it. A store is
    not passed to other processes: they open it by its `uri`.

    Raises:
        StorageFailed: by every method, where the store does not do what it was asked.
    """

    uri: str

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with all its bytes at once; whether it was this call that created it.

        Of many callers exactly one creates it. It is durable when this returns True. A process
        that dies half-way leaves the whole file or none, and perhaps a temporary one in the same
        folder, whose name begins with a dot and ends with `.tmp`.
        """

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file to write; at the end of the context it is durable, after an error it is gone.

        Not before its end is anybody to be told of it. That it exists already is a failure.
        """

    def read(self, path: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def list(self, folder: str) -> Iterable[StoredFile]:
        """The files in a folder and in those within it, in no order; none where it is missing."""

    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders right in a folder, sorted; none where it is missing."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; what is missing is no failure."""

    def url(self, path: str) -> str:
        """The file as Spark names it; Hadoop's paths know no percent encoding."""


def is_inside(path: str) -> bool:
    """Whether a path, written in the one way it can be, leads to something inside a store."""
    parts = PurePosixPath(path).parts
    return (
        "/".join(parts) == path
        and path not in {"", "/"}
        and ".." not in parts
        and "\\" not in path
        and path.isprintable()
    )
