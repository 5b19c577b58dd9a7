"""Runs on a table with files of a few bytes, for tests of commits."""

from collections.abc import Callable, Iterable
from typing import Any

from spark_jobs.tables import DataFile, Run, Snapshot, Table


def write_run_file(table: Table, run: Run, name: str = "a", records: int = 1) -> DataFile:
    """Write a file of the run."""
    path = f"{run.folder}/{name}.parquet"
    with table.store.create(path) as stream:
        stream.write(name.encode() * records)
    return DataFile(path, records, len(name) * records)


def load(table: Table, end: int, base: Snapshot | None = None, **options: Any) -> int:
    """Commit a run that adds one file and consumes up to `end`; the version."""
    run = table.new_run("load")
    added = [write_run_file(table, run, records=3)]
    base = base or table.head()
    return table.commit(base, run=run, position={"end": end}, added=added, **options)


def compact(
    table: Table,
    removed: Iterable[str],
    base: Snapshot | None = None,
    may_rebase: Callable[[Snapshot], bool] | None = None,
) -> int:
    """Commit a run that replaces files by one; the version."""
    run = table.new_run("compact")
    base = base or table.head()
    gone = [file for file in base.files if file.path in set(removed)]
    added = [write_run_file(table, run, "c", sum(file.records for file in gone))]
    paths = [file.path for file in gone]
    return table.commit(
        base,
        run=run,
        position=None,
        added=added,
        removed=paths,
        may_rebase=may_rebase,
    )


def paths(snapshot: Snapshot) -> set[str]:
    return {file.path for file in snapshot.files}


def stored_paths(table: Table) -> set[str]:
    """All data files in the store, of the table or not."""
    return {file.path for file in table.store.list("data")}
