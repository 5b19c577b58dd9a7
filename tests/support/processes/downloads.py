"""A cache of downloads from package registries, shared by all test processes of a machine."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder, which is kept between test runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewind-tests"


@contextmanager
def alone_in_cache() -> Iterator[Path]:
    """Lock the cache, so that only the first process downloads."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
