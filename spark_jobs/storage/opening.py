"""Selects the store of a URI."""

import importlib
import re
from pathlib import Path
from typing import Final

from spark_jobs.errors import InvalidOption, UnsupportedStorage
from spark_jobs.storage.local import LocalStore
from spark_jobs.storage.table_store import TableStore

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def open_store(uri: str) -> TableStore:
    """The store at a folder's path, `file:///PATH` or `hdfs://HOST:PORT/PATH`; it may not exist.

    As in Hadoop's URIs, nothing is percent-encoded.

    Raises:
        InvalidOption: the URI has no folder.
        UnsupportedStorage: stores of this kind, or their libraries, cannot create a file only if it
            is absent.
    """
    scheme, rest = _split(uri)
    if scheme == "file":
        return LocalStore(_local_folder(uri, rest))
    if scheme == "hdfs":
        return _open_hdfs(uri)
    raise UnsupportedStorage(
        f"{uri}: {scheme}:// is not supported, because two concurrent runs could both commit; "
        "allowed are a folder, local or on NFS (/PATH, file:///PATH), and hdfs://HOST:PORT/PATH"
    )


def _split(uri: str) -> tuple[str, str]:
    """The lower-case scheme, and the rest after its colon."""
    found = _SCHEME.fullmatch(uri)
    if found is None:
        return "file", uri
    return found[1].lower(), found[2]


def _local_folder(uri: str, rest: str) -> Path:
    if rest.startswith("//") and not rest.startswith("///"):
        raise InvalidOption(f"{uri} has a host; allowed is file:///PATH")
    if not rest or not rest.isprintable():
        raise InvalidOption(f"{uri!r} is not a folder")
    folder = Path("/" + rest.lstrip("/") if rest.startswith("/") else rest).absolute()
    if ".." in folder.parts:
        raise InvalidOption(f"{uri} contains ..; use the resolved path")
    return folder


def _open_hdfs(uri: str) -> TableStore:
    try:
        hdfs = importlib.import_module("spark_jobs.storage.hdfs")
    except ModuleNotFoundError as error:
        raise UnsupportedStorage(
            f"{uri}: tables on HDFS require hdfs-native: pip install 'rewind[hdfs]'"
        ) from error
    store: TableStore = hdfs.HdfsStore.from_uri(uri)
    return store
