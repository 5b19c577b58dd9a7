"""Processes that write one table concurrently and are killed at random.

The source is the natural numbers. A load takes the next few, a compaction puts one file in the
place of several, a collection deletes what dead runs left. So a table whose position is N has
each number below N once.
"""

import multiprocessing
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.errors import RunSuperseded, StorageFailed, UnsupportedStorage
from spark_jobs.tables import DataFile, Run, Snapshot, Table, open_table
from tests.support.processes.killed_children import die_at_line

SMALL: Final = 100
"""Records of a file that a compaction takes up."""

DEAD_S: Final = 1.0
KEEP_S: Final = 600.0

_context: Final = multiprocessing.get_context("forkserver")


class TableWriter:
    """A writer process, restarted after each kill."""

    def __init__(self, role: str, uri: str, claims: Path, randomness: random.Random) -> None:
        self._arguments = (role, uri, str(claims))
        self._random = randomness
        self._process: BaseProcess | None = None

    def start(self) -> None:
        """Start if not running; a third of the starts die at a random line."""
        if self._process is not None and self._process.is_alive():
            return
        assert self._process is None or self._process.exitcode == -9, self._process.exitcode
        line = self._random.randrange(1_500) if self._random.random() < 1 / 3 else None
        seed = self._random.randrange(2**32)
        self._process = _context.Process(target=work, args=(*self._arguments, seed, line))
        self._process.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def work(role: str, uri: str, claims: str, seed: int, line: int | None) -> None:
    """Act in a role until killed; commits are recorded in a file of `claims`."""
    table, randomness = open_table(uri), random.Random(seed)
    if line is not None:
        die_at_line(line, "spark_jobs/")
    with (Path(claims) / f"{os.getpid()}-{seed}").open("a", buffering=1) as claimed:
        while True:
            # Another writer has the version, or has abandoned this run.
            with suppress(RunSuperseded, UnsupportedStorage, StorageFailed):
                for run, version in _ROLES[role](table, randomness):
                    claimed.write(f"{version} {run.id}\n")


def _load(table: Table, randomness: random.Random) -> Iterator[tuple[Run, int]]:
    base, run = table.head(), table.new_run("load")
    start = base.position.get("end", 0)
    ends = [start + randomness.randint(1, 20)]
    ends.append(ends[0] + randomness.randint(1, 20))
    added = [
        _wrote(table, run, str(part), range(first, last))
        for part, (first, last) in enumerate([(start, ends[0]), (ends[0], ends[1])])
    ]
    position = {"end": ends[1]}
    yield (
        run,
        table.commit(base, run=run, position=position, added=added, may_rebase=lambda _: True),
    )


def _compact(table: Table, randomness: random.Random) -> Iterator[tuple[Run, int]]:
    base, run = table.head(), table.new_run("compact")
    small = [file for file in base.files if file.records < SMALL]
    chosen = randomness.sample(small, min(len(small), 4))
    if len(chosen) < 4:
        return
    numbers = [number for file in chosen for number in numbers_of(table, file)]
    added = [_wrote(table, run, "compacted", numbers)]
    removed = [file.path for file in chosen]
    version = table.commit(
        base,
        run=run,
        position=None,
        added=added,
        removed=removed,
        may_rebase=lambda _: True,
    )
    yield run, version


def _collect(table: Table, _random: random.Random) -> Iterator[tuple[Run, int]]:
    table.delete_orphans(DEAD_S, keep_s=KEEP_S)
    return iter(())


_ROLES: Final[dict[str, Any]] = {"load": _load, "compact": _compact, "collect": _collect}


def _wrote(table: Table, run: Run, name: str, numbers: Any) -> DataFile:
    path = f"{run.folder}/{name}.parquet"
    column = pa.array(numbers, pa.int64())
    with table.store.create(path) as stream:
        pq.write_table(pa.table({"number": column}), stream)
        size = stream.tell()
    return DataFile(path, len(column), size)


def numbers_of(table: Table, file: DataFile) -> list[int]:
    """The numbers in a file of the table."""
    stored = pa.BufferReader(table.store.read(file.path))
    numbers: list[int] = pq.ParquetFile(stored).read(use_threads=False).column("number").to_pylist()
    assert len(numbers) == file.records
    return numbers


def check_content(table: Table, snapshot: Snapshot) -> None:
    """Assert that the table has each number below its position once, and no other."""
    numbers = sorted(number for file in snapshot.files for number in numbers_of(table, file))
    assert numbers == list(range(snapshot.position.get("end", 0)))


def check_claims(table: Table, claims: Path) -> None:
    """Assert that each recorded version has one run, and is in the table."""
    claimed = [line.split() for file in claims.iterdir() for line in file.read_text().splitlines()]
    versions = {int(version): run for version, run in claimed}
    assert len(versions) == len(claimed) > 0
    commits = {commit.version: commit.run for commit in table.commits()}
    assert versions.items() <= commits.items()
