"""Which store a URI means."""

import importlib
import re
from pathlib import Path
from typing import Final

from spark_jobs.errors import InvalidOption, UnsupportedStorage
from spark_jobs.storage.local import LocalStore
from spark_jobs.storage.table_store import TableStore

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def open_store(uri: str) -> TableStore:
    """The store at a folder's path, `file:///PATH` or `hdfs://HOST:PORT/PATH`; there or not yet.

    As Hadoop reads URIs: nothing is percent encoded.

    Raises:
        InvalidOption: the URI names no folder.
        UnsupportedStorage: stores of this kind cannot create a file only if it is absent, or not
            by the libraries that are here.
    """
    scheme, rest = _split(uri)
    if scheme == "file":
        return LocalStore(_local_folder(uri, rest))
    if scheme == "hdfs":
        return _open_hdfs(uri)
    raise UnsupportedStorage(
        f"{uri}: tables are not kept on {scheme}://, where two runs at once could both commit; "
        "allowed are a folder, local or on NFS (/PATH, file:///PATH), and hdfs://HOST:PORT/PATH"
    )


def _split(uri: str) -> tuple[str, str]:
    """The scheme in small letters, and all that is behind its colon."""
    found = _SCHEME.fullmatch(uri)
    if found is None:
        return "file", uri
    return found[1].lower(), found[2]


def _local_folder(uri: str, rest: str) -> Path:
    if rest.startswith("//") and not rest.startswith("///"):
        raise InvalidOption(f"{uri} names a host; a folder is written file:///PATH")
    if not rest or not rest.isprintable():
        raise InvalidOption(f"{uri!r} names no folder")
    folder = Path("/" + rest.lstrip("/") if rest.startswith("/") else rest).absolute()
    if ".." in folder.parts:
        raise InvalidOption(f"{uri} goes up by ..; name the folder itself")
    return folder


def _open_hdfs(uri: str) -> TableStore:
    try:
        hdfs = importlib.import_module("spark_jobs.storage.hdfs")
    except ModuleNotFoundError as error:
        raise UnsupportedStorage(
            f"{uri}: tables on HDFS need the package hdfs-native: pip install 'rewind[hdfs]'"
        ) from error
    store: TableStore = hdfs.HdfsStore.at(uri)
    return store
