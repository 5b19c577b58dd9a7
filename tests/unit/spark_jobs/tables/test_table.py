from pathlib import Path

import pytest

from spark_jobs.errors import (
    CorruptTable,
    InvalidOption,
    NewerTable,
    RunSuperseded,
    UnsupportedStorage,
)
from spark_jobs.tables import Snapshot, Table, open_table
from spark_jobs.tables.chain import manifest_path
from tests.support.spark.table_runs import compact, load, paths, stored_paths, write_run_file


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return open_table(str(tmp_path / "table"))


def yes(_head: Snapshot) -> bool:
    return True


def test_a_new_table_is_empty(table: Table, tmp_path: Path) -> None:
    assert table.head() == Snapshot()
    assert list(table.commits()) == []
    assert not (tmp_path / "table").exists()


def test_files_and_position_become_visible_together(table: Table) -> None:
    run = table.new_run("load")
    added = [write_run_file(table, run, "a", 3), write_run_file(table, run, "b", 4)]
    assert open_table(table.store.uri).head() == Snapshot()
    version = table.commit(
        table.head(), run=run, position={"end": 7}, added=added, report={"lost": 1}
    )
    head = open_table(table.store.uri).head()
    assert (version, head.version, head.records) == (1, 1, 7)
    assert head.files == tuple(added)
    assert head.position == {"end": 7}
    [commit] = table.commits()
    assert (commit.kind, commit.run, commit.report, commit.records) == (
        "load",
        run.id,
        {"lost": 1},
        7,
    )
    assert commit.committed_ms == head.committed_ms > 1_700_000_000_000
    assert commit.code_version


def test_the_writability_check_leaves_no_file(table: Table) -> None:
    run = table.new_run("load")
    table.check_writable(run)
    assert stored_paths(table) == set()
    added = [write_run_file(table, run)]
    table.commit(table.head(), run=run, position={"end": 1}, added=added)
    assert table.head().files == tuple(added)


def test_the_second_of_two_commits_on_a_base_is_rejected(table: Table) -> None:
    base = table.head()
    load(table, 3, base)
    winner = next(table.commits()).run
    with pytest.raises(RunSuperseded, match=f"run {winner} .load. committed version 1 first"):
        load(table, 3, base)
    assert len(table.head().files) == 1


def test_two_runs_that_consumed_the_same_records_conflict(table: Table) -> None:
    base = table.head()
    load(table, 3, base)
    with pytest.raises(RunSuperseded, match="consumed the same"):
        load(table, 3, base, may_rebase=yes)
    assert table.head().version == 1


def test_a_load_commits_after_a_compaction(table: Table) -> None:
    load(table, 3)
    load(table, 6)
    base = table.head()
    compact(table, paths(base))
    load(table, 9, base, may_rebase=yes)
    head = table.head()
    assert (head.version, head.position, head.records) == (4, {"end": 9}, 9)
    assert len(head.files) == 2


def test_a_compaction_commits_after_a_load(table: Table) -> None:
    load(table, 3)
    load(table, 6)
    base = table.head()
    load(table, 9)
    compact(table, paths(base), base, may_rebase=yes)
    head = table.head()
    assert (head.version, head.position, head.records) == (4, {"end": 9}, 9)
    assert len(head.files) == 2


def test_the_second_compaction_of_the_same_files_is_rejected(table: Table) -> None:
    load(table, 3)
    load(table, 6)
    load(table, 9)
    base = table.head()
    first, second, third = (file.path for file in base.files)
    compact(table, [first, second], base)
    with pytest.raises(RunSuperseded, match=f"also removed {second}"):
        compact(table, [second, third], base, may_rebase=yes)
    compact(table, [third], base, may_rebase=yes)
    assert table.head().records == 9


def test_may_rebase_gets_the_head_and_may_reject_it(table: Table) -> None:
    load(table, 3)
    base = table.head()
    load(table, 6)
    shown = []

    def no(head: Snapshot) -> bool:
        shown.append(head)
        return False

    with pytest.raises(RunSuperseded, match="conflicts with version 2"):
        compact(table, paths(base), base, may_rebase=no)
    assert shown == [table.head()]


def test_older_versions_stay_unchanged(table: Table) -> None:
    load(table, 3)
    before = table.head()
    load(table, 6)
    compact(table, paths(table.head()))
    assert table.snapshot_at(1) == before
    assert table.snapshot_at(0) == Snapshot()
    assert [commit.kind for commit in table.commits(after=1)] == ["load", "compact"]
    with pytest.raises(InvalidOption, match="no version 4 yet"):
        table.snapshot_at(4)


def test_commits_of_others_become_visible(table: Table) -> None:
    other = open_table(table.store.uri)
    for end in range(1, 5):
        load(other, end)
        assert table.head() == other.head() == open_table(table.store.uri).head()
        assert table.snapshot_at(1).position == {"end": 1}


def test_a_file_invisible_to_the_committer_is_rejected(table: Table) -> None:
    run = table.new_run("load")
    added = [write_run_file(table, run)]
    table.store.delete(added[0].path)
    with pytest.raises(UnsupportedStorage, match="all machines must share this folder"):
        table.commit(table.head(), run=run, position={"end": 1}, added=added)
    longer = [write_run_file(table, run)._replace(bytes=2)]
    with pytest.raises(UnsupportedStorage, match="does not see the 2 bytes"):
        table.commit(table.head(), run=run, position={"end": 1}, added=longer)
    twice = [write_run_file(table, table.new_run("load"))] * 2
    with pytest.raises(UnsupportedStorage, match="does not see"):
        table.commit(
            table.head(),
            run=run._replace(folder=twice[0].path.rpartition("/")[0]),
            position={"end": 1},
            added=twice,
        )
    assert table.head() == Snapshot()


def spoil(table: Table, version: int, text: str | None) -> Path:
    file = Path(table.store.url(manifest_path(version)).removeprefix("file://"))
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"format": 1, "ver', "not JSON"), ("[]", "not a JSON object"), (None, "missing")],
)
def test_the_error_of_a_broken_chain_has_the_file(
    table: Table, text: str | None, reason: str
) -> None:
    for end in range(1, 4):
        load(table, end)
    file = spoil(table, 2, text)
    with pytest.raises(CorruptTable, match=f"{file}.*{reason}"):
        open_table(table.store.uri).head()
    with pytest.raises(CorruptTable, match=str(file)):
        load(open_table(table.store.uri), 4)


def test_the_error_of_an_inconsistent_commit_has_the_file(table: Table) -> None:
    load(table, 1)
    load(table, 2)
    twice = Path(table.store.url(manifest_path(1)).removeprefix("file://")).read_text()
    file = spoil(table, 2, twice.replace('"version":1,"parent":0', '"version":2,"parent":1'))
    with pytest.raises(CorruptTable, match=f"{file}.*which is already in the table"):
        open_table(table.store.uri).head()


def test_a_table_of_a_newer_program_is_rejected(table: Table) -> None:
    load(table, 1)
    file = spoil(table, 1, '{"format": 2}')
    with pytest.raises(NewerTable, match=f"{file}.*format is 2"):
        open_table(table.store.uri).head()


def test_times_of_versions_never_go_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    load(table, 1)
    first_ms = table.head().committed_ms
    monkeypatch.setattr("time.time", lambda: 1.0)
    load(table, 2)
    assert table.head().committed_ms == first_ms
