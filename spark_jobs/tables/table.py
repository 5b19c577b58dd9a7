"""A table: the Parquet files that its commits name.

    _commits/…      see `chain`
    data/run=UUID/  the files of one run; part of the table once it has committed

The files of a run become visible together with its position in the source, or not at all. A run
that dies before its commit leaves files that no reader uses, and the next run starts where the last
commit ended.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final

from spark_jobs.errors import InvalidOption, RunSuperseded, StorageFailed, UnsupportedStorage
from spark_jobs.storage import TableStore, open_store
from spark_jobs.tables.chain import CHECKPOINT_EVERY, CommitChain
from spark_jobs.tables.manifest import (
    Change,
    Commit,
    DataFile,
    Position,
    Run,
    Snapshot,
    build_commit,
)
from spark_jobs.tables.orphans import DATA, DeletedOrphans, delete_orphans

KEEP_S: Final = 7 * 86_400.0
"""How long files are kept after a commit has removed them, for readers of older versions."""


def open_table(uri: str) -> "Table":
    """The table at a URI; a new one is empty, and its first commit creates it.

    Raises: as `open_store`.
    """
    return Table(open_store(uri))


class Table:
    """Reads a table and commits to it, concurrently with other processes.

    Raises:
        StorageFailed: by every method, if the store fails.
        CorruptTable: by every method, if a manifest is malformed or missing.
        NewerTable: by every method, if a newer program has written a manifest.
    """

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self._chain = CommitChain(store)

    def head(self) -> Snapshot:
        """The current version of the table."""
        return self._chain.snapshot_at(self._chain.last_version())

    def snapshot_at(self, version: int) -> Snapshot:
        """A version of the table; its files exist from the head's `Snapshot.oldest` on.

        Raises:
            InvalidOption: the version does not exist yet.
        """
        return self._chain.snapshot_at(version)

    def readable_snapshot(self, version: int | None = None) -> Snapshot:
        """The current version, or an earlier one whose files still exist.

        Raises:
            InvalidOption: the version does not exist yet, or its files were deleted.
        """
        head = self.head()
        if version is None:
            return head
        if not head.oldest <= version <= head.version:
            raise InvalidOption(
                f"version is {version}; allowed are {head.oldest} to {head.version}, whose files "
                f"exist in {self.store.uri}"
            )
        return self.snapshot_at(version)

    def commits(self, after: int = 0) -> Iterator[Commit]:
        """The commits after a version, oldest first."""
        return self._chain.commits_after(after)

    def new_run(self, kind: str) -> Run:
        """A run of a job of this kind, which may commit once and writes only to its own folder."""
        identity = str(uuid.uuid4())
        return Run(identity, kind, f"{DATA}/run={identity}", self._chain.last_version())

    def check_writable(self, run: Run) -> None:
        """Check that the run's files can be written, before any work is done.

        Raises:
            StorageFailed: they cannot be written from here.
        """
        probe = f"{run.folder}/_probe"
        with self.store.create(probe):
            pass
        self.store.delete(probe)

    def commit(
        self,
        base: Snapshot,
        *,
        run: Run,
        position: Position | None,
        added: Sequence[DataFile],
        removed: Sequence[str] = (),
        report: Mapping[str, Any] | None = None,
        may_rebase: Callable[[Snapshot], bool] | None = None,
    ) -> int:
        """Make the files and the position of a run visible atomically; the new version.

        A position of None does not change, for jobs that consume nothing. Commits after `base`
        conflict, unless `may_rebase` accepts their result as the new base. It is called only if the
        commits do not both consume records and do not remove the same file. Commits that change
        nothing never conflict.

        Raises:
            RunSuperseded: another run's commit conflicts, or the run was abandoned.
            UnsupportedStorage: an added file is not visible from here.
        """
        assert {file.path for file in base.files}.issuperset(removed), removed
        change = Change(run, position, tuple(added), tuple(removed), report or {})
        self._reject_abandoned(run, base.version)
        self._check_files(change)
        head = base
        while True:
            head = self._rebased_head(head, change, may_rebase)
            commit = build_commit(change, head, now_ms=int(time.time() * 1_000))
            if self._chain.add_commit(commit):
                break
        self._write_due_checkpoint(commit.version, head.checkpoint)
        return commit.version

    def delete_orphans(self, older_than_s: float, *, keep_s: float = KEEP_S) -> DeletedOrphans:
        """Delete files that do not belong to the table: of dead runs, and replaced ones.

        A run is dead if it has written nothing for `older_than_s`; if it is still alive, its commit
        is rejected. Replaced files are deleted `keep_s` after the commit that removed them, because
        readers may still use them. Temporary files of the same age as dead runs are deleted, too.
        """
        return delete_orphans(self.store, self._chain, older_than_s=older_than_s, keep_s=keep_s)

    def _check_files(self, change: Change) -> None:
        """Check that the added files are in the run's folder, and have the sizes that were written.

        This detects a folder that machines do not share, before readers do.
        """
        if not change.added:
            return
        # Entries are removed when found, so no file counts twice.
        sizes = {file.path: file.size for file in self.store.list(change.run.folder)}
        for file in change.added:
            path = PurePosixPath(file.path)
            assert path.is_relative_to(change.run.folder), file.path
            assert not path.name.startswith(("_", ".")), f"Spark ignores {path.name}"
            if sizes.pop(file.path, None) != file.bytes:
                # It may be missing because the run was abandoned.
                self._reject_abandoned(change.run, self._chain.last_version())
                raise UnsupportedStorage(
                    f"{self.store.url(file.path)}: the driver does not see the {file.bytes} bytes "
                    "that a task has written; all machines must share this folder"
                )

    def _reject_abandoned(self, run: Run, until: int) -> None:
        for version in range(run.since + 1, until + 1):
            if run.id in self._chain.commit_at(version).abandoned:
                raise self._superseded(run, f"version {version} abandoned it")

    def _rebased_head(
        self, head: Snapshot, change: Change, may_rebase: Callable[[Snapshot], bool] | None
    ) -> Snapshot:
        """The current head, if the change can follow it."""
        commits = list(self._chain.commits_after(head.version))
        if not commits:
            return head
        before = head.position
        for commit in commits:
            reason = change.conflict_with(commit, before, rebases=may_rebase is not None)
            if reason is not None:
                raise self._superseded(change.run, reason)
            before = commit.position
        newest = self._chain.snapshot_after(head, commits)
        if may_rebase is not None and not may_rebase(newest):
            reason = f"it conflicts with version {newest.version}, by run {commits[-1].run}"
            raise self._superseded(change.run, reason)
        return newest

    def _superseded(self, run: Run, reason: str) -> RunSuperseded:
        return RunSuperseded(
            f"run {run.id} was not committed to {self.store.uri}, and is not visible: {reason}"
        )

    def _write_due_checkpoint(self, version: int, last: int) -> None:
        """Write a checkpoint that is due, also if the run that should have written it died."""
        due = version // CHECKPOINT_EVERY * CHECKPOINT_EVERY
        if due > last:
            # The commit is complete; the next one writes the checkpoint.
            with suppress(StorageFailed):
                self._chain.add_checkpoint(due)
