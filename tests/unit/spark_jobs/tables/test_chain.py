"""Reading cost does not grow with history, and checkpoints do not change results."""

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from spark_jobs.errors import StorageFailed
from spark_jobs.storage import StoredFile, open_store
from spark_jobs.tables import Table, chain, open_table
from spark_jobs.tables import table as table_module
from spark_jobs.tables.chain import checkpoint_path
from tests.support.processes.killed_children import ends_when_killed_at_line
from tests.support.spark.table_runs import compact, load, paths

LENGTH = 217

# The long table is made once.
pytestmark = pytest.mark.xdist_group("chain")


class WatchedStore:
    """A folder that records reads and listings."""

    def __init__(self, uri: str) -> None:
        self._store = open_store(uri)
        self.uri = self._store.uri
        self.read_paths: list[str] = []
        self.listed = 0
        self.unwritable = ""

    def create_if_absent(self, path: str, data: bytes) -> bool:
        if path == self.unwritable:
            raise StorageFailed(path)
        return self._store.create_if_absent(path, data)

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self._store.create(path)

    def read(self, path: str) -> bytes:
        self.read_paths.append(path)
        return self._store.read(path)

    def list(self, folder: str) -> Iterator[StoredFile]:
        return self._counted(self._store.list(folder))

    def folders(self, folder: str) -> Sequence[str]:
        names = self._store.folders(folder)
        self.listed += len(names)
        return names

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def url(self, path: str) -> str:
        return self._store.url(path)

    def _counted(self, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
        for file in files:
            self.listed += 1
            yield file


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a table of many loads, with a compaction after every tenth."""
    table = open_table(str(tmp_path_factory.mktemp("long") / "table"))
    while table.head().version < LENGTH:
        load(table, (table.head().version + 1) * 3)
        if table.head().version % 11 == 10:
            compact(table, paths(table.head()))
    return table.store.uri


def test_a_long_table_is_read_from_a_checkpoint_and_newer_commits(long_table: str) -> None:
    store = WatchedStore(long_table)
    head = Table(store).head()
    assert head.version == LENGTH
    assert head.checkpoint == 200
    assert [path.rpartition("/")[2] for path in store.read_paths] == [
        f"{200:020}.checkpoint.json",
        *(f"{version:020}.json" for version in range(201, LENGTH + 1)),
    ]
    # The folders of hundreds, and the files of the last one.
    assert store.listed == 3 + 18


def test_a_second_read_reads_no_commit_again(long_table: str) -> None:
    store = WatchedStore(long_table)
    table = Table(store)
    table.head()
    store.read_paths.clear()
    assert table.head().version == LENGTH
    assert store.read_paths == []


@pytest.mark.parametrize("version", [0, 1, 99, 100, 101, 199, 200, LENGTH])
def test_checkpoints_equal_their_commits(long_table: str, version: int) -> None:
    table = open_table(long_table)
    files: dict[str, int] = {}
    position: Mapping[str, Any] = {}
    for commit in table.commits():
        if commit.version <= version:
            position = commit.position
            files |= {file.path: file.records for file in commit.added}
            for path in commit.removed:
                del files[path]
    snapshot = table.snapshot_at(version)
    assert snapshot.position == position
    assert {file.path: file.records for file in snapshot.files} == files
    assert snapshot.checkpoint == version // 100 * 100


def test_a_missing_checkpoint_is_written_with_the_next_commit(tmp_path: Path) -> None:
    store = WatchedStore(str(tmp_path / "table"))
    store.unwritable = checkpoint_path(100)
    table = Table(store)
    for end in range(1, 101):
        load(table, end)
    assert open_table(store.uri).head().checkpoint == 0
    store.unwritable = ""
    load(Table(store), 101)
    head = open_table(store.uri).head()
    assert (head.version, head.checkpoint, head.records) == (101, 100, 303)


@pytest.mark.long
@pytest.mark.processes
def test_a_killed_commit_is_complete_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (chain, table_module):
        monkeypatch.setattr(module, "CHECKPOINT_EVERY", 10)
    begun = open_table(str(tmp_path / "begun"))
    for end in range(1, 10):
        load(begun, end)
    seen = set()
    for number in itertools.count():
        commits = tmp_path / str(number) / "_commits"
        shutil.copytree(tmp_path / "begun/_commits", commits, copy_function=os.link)
        table = open_table(str(tmp_path / str(number)))
        # The tenth commit, which has a checkpoint.
        ended = ends_when_killed_at_line(
            number, "spark_jobs/tables/table.py", partial(load, table, 10)
        )
        head = table.head()
        seen.add((head.version, head.position["end"], head.records, head.checkpoint))
        load(table, 20)
        again = table.head()
        assert (again.version, again.records) == (head.version + 1, head.records + 3)
        assert again.checkpoint == again.version // 10 * 10
        if ended:
            break
    assert seen == {(9, 9, 27, 0), (10, 10, 30, 0), (10, 10, 30, 10)}


def test_without_checkpoints_all_commits_are_read(long_table: str, tmp_path: Path) -> None:
    head = open_table(long_table).head()
    copied = tmp_path / "table"
    for file in Path(long_table.removeprefix("file://")).glob("_commits/*/*[0-9].json"):
        copy = copied / "_commits" / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    again = open_table(str(copied)).head()
    assert again.checkpoint == 0
    assert (again.version, again.position, again.files) == (head.version, head.position, head.files)


def test_an_empty_folder_of_commits_is_ignored(tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "table"))
    load(table, 3)
    (tmp_path / "table/_commits" / f"{100:020}").mkdir()
    (tmp_path / "table/_commits/lost+found").mkdir()
    assert open_table(table.store.uri).head().version == 1
