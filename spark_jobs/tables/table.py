"""A table: Parquet files of which exactly those count that its commits name.

    _commits/…      see `chain`
    data/run=UUID/  the files that one run wrote; they count once it has committed

What a run writes is seen all at once, together with the position up to which it has consumed its
source, or not at all: a run that dies before it commits leaves files that no reader looks at, and
the next run begins where the last commit ended.
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
    commit_of,
)
from spark_jobs.tables.orphans import DATA, Collected, collect

KEEP_S: Final = 7 * 86_400.0
"""How long readers of a version have before the files that it alone has may be deleted."""


def open_table(uri: str) -> "Table":
    """The table at a URI; one that is not there yet is empty, and is made by its first commit.

    Raises: as `open_store`.
    """
    return Table(open_store(uri))


class Table:
    """Reads a table, and adds to it, beside any number of others who do so.

    Raises:
        StorageFailed: by every method, where the store does not do what it was asked.
        CorruptTable: a manifest does not parse, or one of the chain is missing.
        NewerTable: a newer program has written a manifest.
    """

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self._chain = CommitChain(store)

    def head(self) -> Snapshot:
        """The table as of now."""
        return self._chain.at(self._chain.last_version())

    def at(self, version: int) -> Snapshot:
        """The table as it was; from `Snapshot.oldest` of the head on, its files are there.

        Raises:
            InvalidOption: there is no such version yet.
        """
        return self._chain.at(version)

    def readable(self, version: int | None = None) -> Snapshot:
        """The table as of now, or at a version whose files are there still.

        Raises:
            InvalidOption: there is no such version yet, or its files are not kept any more.
        """
        head = self.head()
        if version is None:
            return head
        if not head.oldest <= version <= head.version:
            raise InvalidOption(
                f"version is {version}; allowed are {head.oldest} to {head.version}, of which "
                f"{self.store.uri} has the files"
            )
        return self.at(version)

    def commits(self, after: int = 0) -> Iterator[Commit]:
        """The commits after a version, the oldest first, as far as there are any."""
        return self._chain.newer(after)

    def new_run(self) -> Run:
        """A run that may commit once; all that it adds is to lie in the folder of its own."""
        identity = str(uuid.uuid4())
        return Run(identity, f"{DATA}/run={identity}", self._chain.last_version())

    def try_folder(self, run: Run) -> None:
        """See that the run's files can be written, before any work is done for nothing.

        Raises:
            StorageFailed: they cannot, from here.
        """
        probe = f"{run.folder}/_probe"
        with self.store.create(probe):
            pass
        self.store.delete(probe)

    def commit(
        self,
        base: Snapshot,
        *,
        kind: str,
        run: Run,
        position: Position | None,
        added: Sequence[DataFile],
        removed: Sequence[str] = (),
        report: Mapping[str, Any] | None = None,
        may_rebase: Callable[[Snapshot], bool] | None = None,
    ) -> int:
        """Make everything that a run did visible, at once and for good; the version.

        A position of None stays as it is: what neither consumes nor moves it, such as a
        compaction. What others committed after `base` is in the way, unless `may_rebase` says of
        the head as of now that the run fits on top of it. It is asked only if not both consumed
        something, and not both removed the same file. What changes nothing is never in the way.

        Raises:
            RunSuperseded: another run's commit is in the way, or the run was taken for dead.
            UnsupportedStorage: a file that was added cannot be seen from here.
        """
        assert {file.path for file in base.files}.issuperset(removed), removed
        change = Change(kind, run, position, tuple(added), tuple(removed), report or {})
        self._refuse_abandoned(run, base.version)
        self._check(change)
        head = base
        while True:
            head = self._on_top(head, change, may_rebase)
            commit = commit_of(change, head, now_ms=int(time.time() * 1_000))
            if self._chain.add(commit):
                break
        self._keep_checkpoint(commit.version, head.checkpoint)
        return commit.version

    def collect_orphans(self, older_than_s: float, *, keep_s: float = KEEP_S) -> Collected:
        """Delete files that are not the table's: of dead runs, and those that were replaced.

        Of a run that has written nothing for `older_than_s`, whatever no commit names; if it is
        alive after all, its commit is refused. What a commit removed, only once that is `keep_s`
        ago: readers may have begun before. And temporary files of that age.
        """
        return collect(self.store, self._chain, older_than_s=older_than_s, keep_s=keep_s)

    def _check(self, change: Change) -> None:
        """The files are where they belong, and who commits sees of them what their writers wrote.

        A folder that is not shared by all machines is found here, and not by the readers.
        """
        if not change.added:
            return
        # Each is taken out when it is found, so none counts twice.
        sizes = {file.path: file.size for file in self.store.list(change.run.folder)}
        for file in change.added:
            path = PurePosixPath(file.path)
            assert path.is_relative_to(change.run.folder), file.path
            assert not path.name.startswith(("_", ".")), f"Spark passes over {path.name}"
            if sizes.pop(file.path, None) != file.bytes:
                # Or is it being deleted, since the run was taken for dead?
                self._refuse_abandoned(change.run, self._chain.last_version())
                raise UnsupportedStorage(
                    f"{self.store.url(file.path)}: who commits does not see the {file.bytes} "
                    "bytes that were written; does every machine of the cluster have the same "
                    "folder there?"
                )

    def _refuse_abandoned(self, run: Run, until: int) -> None:
        for version in range(run.since + 1, until + 1):
            if run.id in self._chain.commit_at(version).abandoned:
                raise self._superseded(run, f"version {version} gave it up as dead")

    def _on_top(
        self, head: Snapshot, change: Change, may_rebase: Callable[[Snapshot], bool] | None
    ) -> Snapshot:
        """The head as of now, if the change fits on top of it."""
        commits = list(self._chain.newer(head.version))
        if not commits:
            return head
        before = head.position
        for commit in commits:
            reason = change.conflict(commit, before, rebases=may_rebase is not None)
            if reason is not None:
                raise self._superseded(change.run, reason)
            before = commit.position
        newest = self._chain.followed(head, commits)
        if may_rebase is not None and not may_rebase(newest):
            reason = f"it does not fit on version {newest.version}, by run {commits[-1].run}"
            raise self._superseded(change.run, reason)
        return newest

    def _superseded(self, run: Run, reason: str) -> RunSuperseded:
        return RunSuperseded(
            f"run {run.id} is not committed to {self.store.uri}, and none of it is seen: {reason}"
        )

    def _keep_checkpoint(self, version: int, last: int) -> None:
        """Write the checkpoint that is due, be it that its own commit's run died before it did."""
        due = version // CHECKPOINT_EVERY * CHECKPOINT_EVERY
        if due > last:
            # The commit stands. Whoever commits next sees that the checkpoint is due.
            with suppress(StorageFailed):
                self._chain.add_checkpoint(due)
