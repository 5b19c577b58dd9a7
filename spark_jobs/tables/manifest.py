"""What a table is made of: commits, and the snapshot that they add up to. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version as installed_version
from typing import Any, NamedTuple

Position = Mapping[str, Any]
"""What a job has consumed, as it sees fit to write it in JSON; empty before its first commit."""


class DataFile(NamedTuple):
    """A Parquet file of a table. What a table has no notion of is None."""

    path: str
    """Relative to the table: `data/run=…/….parquet`."""

    records: int
    bytes: int
    topic: str | None = None
    partition: int | None = None
    """None as well where the file has records of several."""

    date: str | None = None
    """As in 2026-11-21, UTC."""

    hour: int | None = None
    """0 to 23, UTC."""

    offset_min: int | None = None
    offset_max: int | None = None
    """Inclusive, as are the times."""

    time_min_ms: int | None = None
    time_max_ms: int | None = None


class Run(NamedTuple):
    """One attempt to add to a table. May be passed to other processes."""

    id: str
    """A UUID."""

    folder: str
    """Where it writes its files, relative to the table; nobody else does."""

    since: int
    """The version that the table had reached when the run began."""


@dataclass(frozen=True)
class Commit:
    """A step from version N-1 to N of a table."""

    version: int
    kind: str
    """Which job made it, such as `load` or `compact`."""

    run: str
    position: Position
    """As of now, whether or not this commit moved it."""

    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    """Paths of files that are not of the table from here on."""

    committed_ms: int
    """Since 1970, by the clock of who committed; never before the commit before."""

    code_version: str
    report: Mapping[str, Any] = field(default_factory=dict)
    """What the job tells of itself, in JSON."""

    abandoned: tuple[str, ...] = ()
    """Runs whose files are being deleted: they cannot commit any more."""

    oldest: int = 0
    """Files that only versions before this one have may be gone."""

    @property
    def records(self) -> int:
        """How many records the added files have."""
        return sum(file.records for file in self.added)


@dataclass(frozen=True)
class Snapshot:
    """A table at one of its versions; version 0 is the empty table, before the first commit."""

    version: int = 0
    position: Position = field(default_factory=dict)
    files: tuple[DataFile, ...] = ()
    committed_ms: int = 0
    """When it became so, in ms since 1970."""

    oldest: int = 0
    """The first version whose files are all there still."""

    checkpoint: int = 0
    """The version whose checkpoint this was read from; 0 where it was from none."""

    @property
    def records(self) -> int:
        """How many records the table has."""
        return sum(file.records for file in self.files)


class Inconsistent(ValueError):
    """The commit of a version does not fit on what is before it."""

    def __init__(self, version: int, reason: str) -> None:
        super().__init__(reason)
        self.version = version


def fold(start: Snapshot, commits: Iterable[Commit]) -> Snapshot:
    """The snapshot after the commits, which follow the one at the start without a gap.

    Raises:
        Inconsistent: the table would have a file twice, or lose one that it does not have.
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
            raise Inconsistent(commit.version, f"it removes {path}, which the table does not have")
    for file in commit.added:
        if file.path in files:
            raise Inconsistent(commit.version, f"it adds {file.path}, which the table has")
        files[file.path] = file


@dataclass(frozen=True)
class Change:
    """What a run wants to commit."""

    kind: str
    run: Run
    position: Position | None
    """None where nothing was consumed: the position stays what it is."""

    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    abandoned: tuple[str, ...] = ()
    oldest: int = 0

    def conflict(self, commit: Commit, before: Position, *, rebases: bool) -> str | None:
        """Why it cannot go on top of a commit that another run put in between; None: it can.

        `before` is the position before that commit. What `rebases` accepts what does not touch
        the same: not both consumed something, and not both removed a file.
        """
        if self.run.id in commit.abandoned:
            return f"version {commit.version} gave it up as dead, and its files are deleted"
        consumed = commit.position != before
        first = f"run {commit.run} ({commit.kind}) committed version {commit.version} first"
        if not rebases and (consumed or commit.added or commit.removed):
            return first
        if consumed and self.position is not None:
            return f"{first}, and consumed the same"
        gone = set(self.removed).intersection(commit.removed)
        if gone:
            return f"{first}, and removed {min(gone)} as well"
        return None


def commit_of(change: Change, head: Snapshot, *, now_ms: int) -> Commit:
    """The commit that puts a change on top of a snapshot."""
    return Commit(
        version=head.version + 1,
        kind=change.kind,
        run=change.run.id,
        position=head.position if change.position is None else change.position,
        added=change.added,
        removed=change.removed,
        # Clocks of machines differ, and times of versions are compared.
        committed_ms=max(now_ms, head.committed_ms),
        code_version=installed_version("rewind"),
        report=change.report,
        abandoned=change.abandoned,
        oldest=change.oldest,
    )
