"""The commits of a table, and where they are stored.

    _commits/00000000000000000000/00000000000000000001.json             versions 1 to 100
    _commits/00000000000000000000/00000000000000000100.json
    _commits/00000000000000000100/00000000000000000100.checkpoint.json  the table at version 100
    _commits/00000000000000000100/00000000000000000101.json             versions 101 to 200

Files are never changed or deleted, except for temporary ones after a crash. Each hundred commits
have a folder, so finding the last commit lists few files, and reading the table needs only a
checkpoint and newer commits. If a crash prevents a checkpoint, the next commit writes it; until
then the table is read from the previous one.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark_jobs.errors import CorruptTable, InvalidOption, NewerTable
from spark_jobs.storage import TableStore
from spark_jobs.tables.manifest import Commit, InconsistentCommit, Snapshot, apply_commits
from spark_jobs.tables.manifest_json import (
    MalformedManifest,
    read_checkpoint,
    read_commit,
    write_checkpoint,
    write_commit,
)

FOLDER: Final = "_commits"
CHECKPOINT_EVERY: Final = 100
"""A table with a commit per minute gets five thousand folders in a year."""

_MANIFEST: Final = re.compile(r".*/([0-9]{20})\.json")
_HUNDRED: Final = re.compile(r"[0-9]{20}")


def manifest_path(version: int) -> str:
    """The path of the commit that leads to a version."""
    return f"{_folder(_checkpoint_before(version))}/{version:020}.json"


def checkpoint_path(version: int) -> str:
    """The path of the checkpoint of a version, a multiple of a hundred."""
    return f"{_folder(version)}/{version:020}.checkpoint.json"


def _folder(checkpoint: int) -> str:
    return f"{FOLDER}/{checkpoint:020}"


def _checkpoint_before(version: int) -> int:
    return (version - 1) // CHECKPOINT_EVERY * CHECKPOINT_EVERY


class CommitChain:
    """Reads commits of a table and adds new ones."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._newest = Snapshot()
        """The newest snapshot read so far; later reads start from it."""

    def last_version(self) -> int:
        """The newest version; 0 if there is none."""
        names = self._store.folders(FOLDER)
        for hundred in reversed([name for name in names if _HUNDRED.fullmatch(name)]):
            versions = [
                int(found[1])
                for file in self._store.list(f"{FOLDER}/{hundred}")
                if (found := _MANIFEST.fullmatch(file.path))
            ]
            # A run may have created the folder and died before its commit.
            if versions:
                return max(versions)
        return 0

    def snapshot_at(self, version: int) -> Snapshot:
        """The table at a version.

        Raises:
            InvalidOption: the version does not exist yet.
            CorruptTable: a manifest is malformed or missing.
            NewerTable: a newer program has written a manifest.
        """
        assert version >= 0, version
        start = self._start(version)
        commits = [self.commit_at(number) for number in range(start.version + 1, version + 1)]
        snapshot = self.snapshot_after(start, commits)
        if version > self._newest.version:
            self._newest = snapshot
        return snapshot

    def commit_at(self, version: int) -> Commit:
        """The commit that led to a version; raises as `snapshot_at`."""
        commit = self._find(version)
        if commit is None and version > self.last_version():
            raise InvalidOption(f"{self._store.uri} has no version {version} yet")
        if commit is None:
            raise CorruptTable(f"{self._store.url(manifest_path(version))} is missing")
        return commit

    def commits_after(self, version: int) -> Iterator[Commit]:
        """The commits after a version, in order; raises as `snapshot_at`."""
        while (commit := self._find(version + 1)) is not None:
            yield commit
            version = commit.version

    def snapshot_after(self, start: Snapshot, commits: list[Commit]) -> Snapshot:
        """The snapshot after the commits that follow on `start`; raises as `snapshot_at`."""
        try:
            return apply_commits(start, commits)
        except InconsistentCommit as error:
            path = manifest_path(error.version)
            raise CorruptTable(f"{self._store.url(path)}: {error}") from error

    def add_commit(self, commit: Commit) -> bool:
        """Store a commit; False if its version has another commit."""
        path, data = manifest_path(commit.version), write_commit(commit)
        # After an error, a retry may find the file that the first attempt created.
        return self._store.create_if_absent(path, data) or self._store.read(path) == data

    def add_checkpoint(self, version: int) -> None:
        """Store the snapshot of a version, a multiple of a hundred, for readers of later ones."""
        self._store.create_if_absent(
            checkpoint_path(version), write_checkpoint(self.snapshot_at(version))
        )

    def _start(self, version: int) -> Snapshot:
        """The newest known or stored snapshot up to a version, or else the empty table."""
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
        """Add the file's URL to errors of its content."""
        try:
            yield
        except MalformedManifest as error:
            raise CorruptTable(f"{self._store.url(path)}: {error}") from error
        except NewerTable as error:
            raise NewerTable(f"{self._store.url(path)}: {error}") from error
