"""The data model of a table: commits, and the snapshots that result from them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version as installed_version
from typing import Any, NamedTuple

Position = Mapping[str, Any]
"""What a job has consumed, as JSON of its own form; empty before its first commit."""


class DataFile(NamedTuple):
    """A Parquet file of a table; None for what does not apply to the table."""

    path: str
    """Relative to the table: `data/run=…/….parquet`."""

    records: int
    bytes: int
    topic: str | None = None
    partition: int | None = None
    """Also None if the file has records of several partitions."""

    date: str | None = None
    """Such as 2026-11-21, UTC."""

    hour: int | None = None
    """0 to 23, UTC."""

    offset_min: int | None = None
    offset_max: int | None = None
    """Inclusive, like the times."""

    time_min_ms: int | None = None
    time_max_ms: int | None = None


class Run(NamedTuple):
    """One attempt to add to a table. May be sent to other processes."""

    id: str
    """A UUID."""

    kind: str
    """The job, such as `load` or `compact`."""

    folder: str
    """The folder for its files, relative to the table; only this run writes there."""

    since: int
    """The version of the table when the run began."""


@dataclass(frozen=True)
class Commit:
    """A step from version N-1 to N of a table."""

    version: int
    kind: str
    """The job that made it, such as `load` or `compact`."""

    run: str
    position: Position
    """The position at this version, changed by this commit or not."""

    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    """Paths of files that no longer belong to the table."""

    committed_ms: int
    """Since 1970, by the committer's clock; never before the previous commit."""

    code_version: str
    report: Mapping[str, Any] = field(default_factory=dict)
    """The job's report, as JSON."""

    abandoned: tuple[str, ...] = ()
    """Runs whose files are being deleted, and which can no longer commit."""

    oldest: int = 0
    """The first version whose files are all kept."""

    @property
    def records(self) -> int:
        """The number of records in the added files."""
        return sum(file.records for file in self.added)


@dataclass(frozen=True)
class Snapshot:
    """A table at one of its versions; version 0 is the empty table before the first commit."""

    version: int = 0
    position: Position = field(default_factory=dict)
    files: tuple[DataFile, ...] = ()
    committed_ms: int = 0
    """Time of the commit, in ms since 1970."""

    oldest: int = 0
    """The first version whose files all still exist."""

    checkpoint: int = 0
    """The version of the checkpoint that it was read from; 0 if none."""

    @property
    def records(self) -> int:
        """The number of records in the table."""
        return sum(file.records for file in self.files)


class InconsistentCommit(ValueError):
    """A commit does not fit the previous version."""

    def __init__(self, version: int, reason: str) -> None:
        super().__init__(reason)
        self.version = version


def apply_commits(start: Snapshot, commits: Iterable[Commit]) -> Snapshot:
    """The snapshot after consecutive commits that follow `start`.

    Raises:
        InconsistentCommit: a file would be added twice, or removed without being in the table.
    """
    files = {file.path: file for file in start.files}
    snapshot = start
    for commit in commits:
        assert commit.version == snapshot.version + 1
        _apply(files, commit)
        snapshot = replace(
            snapshot,
            version=commit.version,
            position=commit.position,
            committed_ms=commit.committed_ms,
            oldest=max(snapshot.oldest, commit.oldest),
        )
    return replace(snapshot, files=tuple(files.values()))


def _apply(files: dict[str, DataFile], commit: Commit) -> None:
    for path in commit.removed:
        if files.pop(path, None) is None:
            raise InconsistentCommit(commit.version, f"removes {path}, which is not in the table")
    for file in commit.added:
        if file.path in files:
            raise InconsistentCommit(
                commit.version, f"adds {file.path}, which is already in the table"
            )
        files[file.path] = file


@dataclass(frozen=True)
class Change:
    """What a run wants to commit."""

    run: Run
    position: Position | None
    """None if nothing was consumed: the position does not change."""

    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    abandoned: tuple[str, ...] = ()
    oldest: int = 0

    def conflict_with(self, commit: Commit, before: Position, *, rebases: bool) -> str | None:
        """Why the change cannot follow a commit by another run; None if it can.

        `before` is the position before that commit. With `rebases`, only two kinds of commits
        conflict: both consumed records, or both removed the same file.
        """
        if self.run.id in commit.abandoned:
            return f"version {commit.version} abandoned it, and its files are deleted"
        consumed = commit.position != before
        first = f"run {commit.run} ({commit.kind}) committed version {commit.version} first"
        if not rebases and (consumed or commit.added or commit.removed):
            return first
        if consumed and self.position is not None:
            return f"{first}, and consumed the same records"
        gone = set(self.removed).intersection(commit.removed)
        if gone:
            return f"{first}, and also removed {min(gone)}"
        return None


def build_commit(change: Change, head: Snapshot, *, now_ms: int) -> Commit:
    """The commit that applies a change to a snapshot."""
    return Commit(
        version=head.version + 1,
        kind=change.run.kind,
        run=change.run.id,
        position=head.position if change.position is None else change.position,
        added=change.added,
        removed=change.removed,
        # Clocks differ between machines, and times of versions must not go back.
        committed_ms=max(now_ms, head.committed_ms),
        code_version=installed_version("rewind"),
        report=change.report,
        abandoned=change.abandoned,
        oldest=change.oldest,
    )
