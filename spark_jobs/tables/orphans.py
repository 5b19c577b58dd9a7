"""Deletes orphans: files that no readable version of a table has.

A run that seems dead may be alive, and may commit while its files are being deleted. So a commit
abandons the run first. If the run's own commit is earlier, its files belong to the table; if it is
later, it is rejected.
"""

import re
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_jobs.storage import StoredFile, TableStore
from spark_jobs.tables.chain import FOLDER, CommitChain
from spark_jobs.tables.manifest import Change, Run, Snapshot, build_commit

DATA: Final = "data"
_RUN: Final = re.compile(r"run=([0-9a-f-]{36})")


class DeletedOrphans(NamedTuple):
    """The numbers of deleted runs, files and bytes."""

    runs: int
    """Runs with deleted files."""

    files: int
    bytes: int


class _OrphanFiles(NamedTuple):
    """Files of one run that no readable version has."""

    run: str
    files: tuple[StoredFile, ...]
    whole: bool
    """Whether these are all files of the run."""


def delete_orphans(
    store: TableStore, chain: CommitChain, *, older_than_s: float, keep_s: float
) -> DeletedOrphans:
    """See `Table.delete_orphans`."""
    now_s = time.time()
    orphans = _abandon_runs(store, chain, now_s, older_than_s=older_than_s, keep_s=keep_s)
    for run in orphans:
        for path in [f"{DATA}/run={run.run}"] if run.whole else [file.path for file in run.files]:
            store.delete(path)
    temporary = list(_temporary_files(store, before_s=now_s - older_than_s))
    for file in temporary:
        store.delete(file.path)
    files = [file for run in orphans for file in run.files] + temporary
    return DeletedOrphans(len(orphans), len(files), sum(file.size for file in files))


def _abandon_runs(
    store: TableStore, chain: CommitChain, now_s: float, *, older_than_s: float, keep_s: float
) -> list[_OrphanFiles]:
    """The orphans, after a commit has abandoned their runs."""
    while True:
        head = chain.snapshot_at(chain.last_version())
        oldest, readable = _readable_files(chain, head, since_ms=int((now_s - keep_s) * 1_000))
        orphans = list(_find_orphans(store, readable, before_s=now_s - older_than_s))
        if not orphans:
            return orphans
        run = Run("collect", "collect", DATA, head.version)
        change = Change(run, None, abandoned=tuple(each.run for each in orphans), oldest=oldest)
        if chain.add_commit(build_commit(change, head, now_ms=int(now_s * 1_000))):
            return orphans


def _readable_files(chain: CommitChain, head: Snapshot, *, since_ms: int) -> tuple[int, set[str]]:
    """The version at a time, and every file of it and of later versions."""
    readable = {file.path for file in head.files}
    version, committed_ms = head.version, head.committed_ms
    while version > head.oldest and committed_ms > since_ms:
        readable.update(chain.commit_at(version).removed)
        version -= 1
        committed_ms = chain.commit_at(version).committed_ms if version else 0
    return version, readable


def _find_orphans(
    store: TableStore, readable: set[str], *, before_s: float
) -> Iterator[_OrphanFiles]:
    """Unreadable files of runs that have written nothing since a time."""
    for name in store.folders(DATA):
        found = _RUN.fullmatch(name)
        files = list(store.list(f"{DATA}/{name}")) if found else []
        orphans = tuple(file for file in files if file.path not in readable)
        if found and orphans and max(file.modified_s for file in files) <= before_s:
            yield _OrphanFiles(found[1], orphans, whole=len(orphans) == len(files))


def _temporary_files(store: TableStore, *, before_s: float) -> Iterator[StoredFile]:
    for file in store.list(FOLDER):
        if file.path.endswith(".tmp") and file.modified_s <= before_s:
            yield file
