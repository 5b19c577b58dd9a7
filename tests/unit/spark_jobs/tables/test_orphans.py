import itertools
import os
import time
from functools import partial
from pathlib import Path

import pytest

from spark_jobs.errors import InvalidOption, RunSuperseded
from spark_jobs.tables import DeletedOrphans, Snapshot, Table, open_table
from tests.support.processes.killed_children import ends_when_killed_at_line
from tests.support.spark.table_runs import compact, load, paths, stored_paths, write_run_file

HOUR_S = 3_600.0


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return open_table(str(tmp_path / "table"))


def age(table: Table, seconds: float, part: str = "") -> None:
    """Set back the modification times of a table's files."""
    folder = Path(table.store.uri.removeprefix("file://")) / part
    for file in folder.rglob("*"):
        past_s = file.stat().st_mtime - seconds
        os.utime(file, (past_s, past_s))


def yes(_head: Snapshot) -> bool:
    return True


def test_files_of_a_dead_run_are_deleted(table: Table) -> None:
    load(table, 3)
    run = table.new_run("load")
    write_run_file(table, run, "dead")
    write_run_file(table, run, "too")
    age(table, 2 * HOUR_S)
    assert table.delete_orphans(HOUR_S) == DeletedOrphans(runs=1, files=2, bytes=7)
    assert stored_paths(table) == paths(table.head())
    assert table.head().records == 3
    assert not table.store.folders(run.folder)
    assert run.folder.removeprefix("data/") not in table.store.folders("data")


def test_without_orphans_nothing_is_committed(table: Table) -> None:
    load(table, 3)
    assert table.delete_orphans(0.0) == DeletedOrphans(0, 0, 0)
    assert table.head().version == 1


def test_files_of_a_live_run_are_kept(table: Table) -> None:
    run = table.new_run("load")
    write_run_file(table, run, "first")
    age(table, 2 * HOUR_S)
    added = [write_run_file(table, run, "second")]
    assert table.delete_orphans(HOUR_S).files == 0
    assert table.commit(table.head(), run=run, position={"end": 1}, added=added) == 1


@pytest.mark.parametrize("written_again", [False, True])
@pytest.mark.parametrize("begins_again", [False, True])
def test_an_abandoned_run_cannot_commit(
    table: Table, begins_again: bool, written_again: bool
) -> None:
    load(table, 3)
    base = table.head()
    run = table.new_run("load")
    added = [write_run_file(table, run)]
    assert table.delete_orphans(0.0).files == 1
    if written_again:
        write_run_file(table, run)
    if begins_again:
        base = table.head()
    with pytest.raises(RunSuperseded, match="version 2 abandoned it"):
        table.commit(base, run=run, position={"end": 9}, added=added, may_rebase=yes)
    assert table.head().position == {"end": 3}


def test_deletion_of_orphans_does_not_conflict(table: Table) -> None:
    base = table.head()
    write_run_file(table, table.new_run("load"))
    table.delete_orphans(0.0)
    load(table, 3, base)
    assert [commit.kind for commit in table.commits()] == ["collect", "load"]
    assert table.head().position == {"end": 3}


def test_replaced_files_are_kept_for_older_readers(table: Table) -> None:
    load(table, 3)
    load(table, 6)
    before = table.head()
    compact(table, paths(before))
    age(table, 2 * HOUR_S)
    assert table.delete_orphans(HOUR_S, keep_s=HOUR_S).files == 0
    assert paths(before) <= stored_paths(table)


def test_files_replaced_long_ago_are_deleted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    load(table, 3)
    compact(table, paths(table.head()))
    load(table, 6)
    compact(table, paths(table.head()))
    now_s = time.time()
    monkeypatch.setattr("time.time", lambda: now_s + 2 * HOUR_S)
    load(table, 9)
    assert table.delete_orphans(HOUR_S, keep_s=HOUR_S).files == 3
    head = table.head()
    assert stored_paths(table) == paths(head)
    # Version 4 was the head an hour ago.
    assert head.oldest == 4
    assert paths(table.snapshot_at(4)) <= stored_paths(table)
    assert not paths(table.snapshot_at(3)) <= stored_paths(table)


def test_a_stray_file_of_a_committed_run_is_deleted(table: Table) -> None:
    run = table.new_run("load")
    added = [write_run_file(table, run, "named", 2)]
    stray = write_run_file(table, run, "stray")
    table.commit(table.head(), run=run, position={"end": 2}, added=added)
    age(table, 2 * HOUR_S)
    assert table.delete_orphans(HOUR_S) == DeletedOrphans(runs=1, files=1, bytes=5)
    assert stray.path not in stored_paths(table)
    assert paths(table.head()) == stored_paths(table)


def test_old_temporary_files_are_deleted(table: Table) -> None:
    load(table, 3)
    hundred = table.store.folders("_commits")[0]
    for name in ("old", "young"):
        table.store.create_if_absent(f"_commits/{hundred}/.{name}.tmp", b"half a mani")
    age(table, 2 * HOUR_S, "_commits")
    table.store.delete(f"_commits/{hundred}/.young.tmp")
    table.store.create_if_absent(f"_commits/{hundred}/.young.tmp", b"half a mani")
    assert table.delete_orphans(HOUR_S) == DeletedOrphans(runs=0, files=1, bytes=11)
    assert [file.path for file in table.store.list("_commits") if ".tmp" in file.path] == [
        f"_commits/{hundred}/.young.tmp"
    ]
    assert table.head().version == 1


def test_files_outside_of_runs_are_kept(table: Table) -> None:
    for path in ("data/notes.txt", "data/run=mine/a.parquet", "data/other/a.parquet"):
        table.store.create_if_absent(path, b"kept")
    assert table.delete_orphans(0.0).files == 0
    assert len(stored_paths(table)) == 3


@pytest.mark.long
@pytest.mark.processes
def test_a_killed_deletion_of_orphans_keeps_the_table_intact(tmp_path: Path) -> None:
    for number in itertools.count():
        table = open_table(str(tmp_path / str(number)))
        load(table, 3)
        dead = table.new_run("load")
        write_run_file(table, dead, "a")
        write_run_file(table, dead, "b")
        ended = ends_when_killed_at_line(
            number, "spark_jobs/tables/orphans", partial(table.delete_orphans, 0.0)
        )
        again = open_table(table.store.uri)
        assert paths(again.head()) <= stored_paths(again)
        assert again.head().position == {"end": 3}
        again.delete_orphans(0.0)
        assert stored_paths(again) == paths(again.head())
        if ended:
            break
    assert number > 30


def test_versions_with_deleted_files_are_rejected(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(table, 3)
    compact(table, paths(table.head()))
    table.delete_orphans(0.0, keep_s=0.0)
    assert table.head().oldest == 2
    with pytest.raises(InvalidOption, match="version is 1; allowed are 2 to 3"):
        table.readable_snapshot(1)
    assert table.readable_snapshot(2).records == 3
    assert table.readable_snapshot(None) == table.head()
