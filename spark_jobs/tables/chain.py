"""The commits of a table, where they are kept.

    _commits/00000000000000000000/00000000000000000001.json             versions 1 to 100
    _commits/00000000000000000000/00000000000000000100.json
    _commits/00000000000000000100/00000000000000000100.checkpoint.json  the table at version 100
    _commits/00000000000000000100/00000000000000000101.json             versions 101 to 200

Nothing in here is ever changed or deleted, but for the temporary files that a crash leaves. A
folder for each hundred: to find the last commit, nobody lists them all, and to read the table,
nobody reads more than a checkpoint and what is newer. A checkpoint that a crash prevented is
written with the next commit; until then the table is read from the one before.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark_jobs.errors import CorruptTable, InvalidOption, NewerTable
from spark_jobs.storage import TableStore
from spark_jobs.tables.manifest import Commit, Inconsistent, Snapshot, fold
from spark_jobs.tables.manifest_json import (
    Malformed,
    read_checkpoint,
    read_commit,
    write_checkpoint,
    write_commit,
)

FOLDER: Final = "_commits"
CHECKPOINT_EVERY: Final = 100
"""A table of a commit each minute has five thousand folders in a year."""

_MANIFEST: Final = re.compile(r".*/([0-9]{20})\.json")
_HUNDRED: Final = re.compile(r"[0-9]{20}")


def manifest_path(version: int) -> str:
    """Where the commit that leads to a version is kept."""
    return f"{_folder(_checkpoint_before(version))}/{version:020}.json"


def checkpoint_path(version: int) -> str:
    """Where the checkpoint of a version is kept, a multiple of a hundred."""
    return f"{_folder(version)}/{version:020}.checkpoint.json"


def _folder(checkpoint: int) -> str:
    return f"{FOLDER}/{checkpoint:020}"


def _checkpoint_before(version: int) -> int:
    return (version - 1) // CHECKPOINT_EVERY * CHECKPOINT_EVERY


class CommitChain:
    """Reads and adds to the commits of a table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._newest = Snapshot()
        """The newest that was read; who asks again reads only what came since."""

    def last_version(self) -> int:
        """The newest version that there is; 0 where there is none."""
        names = self._store.folders(FOLDER)
        for hundred in reversed([name for name in names if _HUNDRED.fullmatch(name)]):
            versions = [
                int(found[1])
                for file in self._store.list(f"{FOLDER}/{hundred}")
                if (found := _MANIFEST.fullmatch(file.path))
            ]
            # One who is about to commit may have made the folder, and have died in it.
            if versions:
                return max(versions)
        return 0

    def at(self, version: int) -> Snapshot:
        """The table at a version.

        Raises:
            InvalidOption: there is no such version yet.
            CorruptTable: a manifest does not parse, or one is missing.
            NewerTable: a newer program has written it.
        """
        assert version >= 0, version
        start = self._start(version)
        commits = [self.commit_at(number) for number in range(start.version + 1, version + 1)]
        snapshot = self.followed(start, commits)
        if version > self._newest.version:
            self._newest = snapshot
        return snapshot

    def commit_at(self, version: int) -> Commit:
        """The commit that led to a version; raises as `at`."""
        commit = self._find(version)
        if commit is None and version > self.last_version():
            raise InvalidOption(f"{self._store.uri} has no version {version} yet")
        if commit is None:
            raise CorruptTable(f"{self._store.url(manifest_path(version))} is missing")
        return commit

    def newer(self, version: int) -> Iterator[Commit]:
        """The commits after a version, in their order; raises as `at`."""
        while (commit := self._find(version + 1)) is not None:
            yield commit
            version = commit.version

    def followed(self, start: Snapshot, commits: list[Commit]) -> Snapshot:
        """The snapshot after the commits that follow on `start`; raises as `at`."""
        try:
            return fold(start, commits)
        except Inconsistent as error:
            path = manifest_path(error.version)
            raise CorruptTable(f"{self._store.url(path)}: {error}") from error

    def add(self, commit: Commit) -> bool:
        """Whether the commit is the one of its version now; False: another one is."""
        path, data = manifest_path(commit.version), write_commit(commit)
        # One who was answered by an error and tries again finds what it created itself.
        return self._store.create_if_absent(path, data) or self._store.read(path) == data

    def add_checkpoint(self, version: int) -> None:
        """Keep the snapshot of a version, a multiple of a hundred, for who reads later ones."""
        self._store.create_if_absent(checkpoint_path(version), write_checkpoint(self.at(version)))

    def _start(self, version: int) -> Snapshot:
        """The newest snapshot up to a version that is known, or kept; else the empty table."""
        last = version // CHECKPOINT_EVERY * CHECKPOINT_EVERY
        if self._newest.checkpoint == last and self._newest.version <= version:
            return self._newest
        for number in range(last, 0, -CHECKPOINT_EVERY):
            path = checkpoint_path(number)
            with suppress(FileNotFoundError), self._corruption(path):
                return read_checkpoint(self._store.read(path), number)
        return Snapshot()

    def _find(self, version: int) -> Commit | None:
        path = manifest_path(version)
        with suppress(FileNotFoundError), self._corruption(path):
            return read_commit(self._store.read(path), version)
        return None

    @contextmanager
    def _corruption(self, path: str) -> Iterator[None]:
        """Name the file that is at fault."""
        try:
            yield
        except Malformed as error:
            raise CorruptTable(f"{self._store.url(path)}: {error}") from error
        except NewerTable as error:
            raise NewerTable(f"{self._store.url(path)}: {error}") from error
