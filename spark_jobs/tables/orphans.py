"""Which files of a table are nobody's any more, and how they go.

A run that looks dead may be alive, and may commit while its files are being deleted. So it is
given up first, by a commit: that either comes after the run's own, and the files are seen to be
the table's, or before it, and then the run cannot commit.
"""

import re
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_jobs.storage import StoredFile, TableStore
from spark_jobs.tables.chain import FOLDER, CommitChain
from spark_jobs.tables.manifest import Change, Run, Snapshot, commit_of

DATA: Final = "data"
_RUN: Final = re.compile(r"run=([0-9a-f-]{36})")


class Collected(NamedTuple):
    """What was deleted."""

    runs: int
    """Runs of which something was."""

    files: int
    bytes: int


class _DeadFiles(NamedTuple):
    """Files of one run that no version has that is kept."""

    run: str
    files: tuple[StoredFile, ...]
    whole: bool
    """Whether the run has no other ones."""


def collect(
    store: TableStore, chain: CommitChain, *, older_than_s: float, keep_s: float
) -> Collected:
    """As `Table.collect_orphans` says."""
    now_s = time.time()
    dead = _give_up(store, chain, now_s, older_than_s=older_than_s, keep_s=keep_s)
    for run in dead:
        for path in [f"{DATA}/run={run.run}"] if run.whole else [file.path for file in run.files]:
            store.delete(path)
    temporary = list(_temporary_files(store, before_s=now_s - older_than_s))
    for file in temporary:
        store.delete(file.path)
    files = [file for run in dead for file in run.files] + temporary
    return Collected(len(dead), len(files), sum(file.size for file in files))


def _give_up(
    store: TableStore, chain: CommitChain, now_s: float, *, older_than_s: float, keep_s: float
) -> list[_DeadFiles]:
    """What is dead, once it is committed that it is."""
    while True:
        head = chain.at(chain.last_version())
        oldest, kept = _kept(chain, head, since_ms=int((now_s - keep_s) * 1_000))
        dead = list(_dead(store, kept, before_s=now_s - older_than_s))
        if not dead:
            return dead
        run = Run("collect", DATA, head.version)
        change = Change(
            "collect", run, None, abandoned=tuple(run.run for run in dead), oldest=oldest
        )
        if chain.add(commit_of(change, head, now_ms=int(now_s * 1_000))):
            return dead


def _kept(chain: CommitChain, head: Snapshot, *, since_ms: int) -> tuple[int, set[str]]:
    """The version that was the head at a time, and every file that one since then has."""
    kept = {file.path for file in head.files}
    version, committed_ms = head.version, head.committed_ms
    while version > head.oldest and committed_ms > since_ms:
        kept.update(chain.commit_at(version).removed)
        version -= 1
        committed_ms = chain.commit_at(version).committed_ms if version else 0
    return version, kept


def _dead(store: TableStore, kept: set[str], *, before_s: float) -> Iterator[_DeadFiles]:
    """What is not kept of runs that have written nothing since a time."""
    for name in store.folders(DATA):
        found = _RUN.fullmatch(name)
        files = list(store.list(f"{DATA}/{name}")) if found else []
        dead = tuple(file for file in files if file.path not in kept)
        if found and dead and max(file.modified_s for file in files) <= before_s:
            yield _DeadFiles(found[1], dead, whole=len(dead) == len(files))


def _temporary_files(store: TableStore, *, before_s: float) -> Iterator[StoredFile]:
    for file in store.list(FOLDER):
        if file.path.endswith(".tmp") and file.modified_s <= before_s:
            yield file
