import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_jobs.tables import Table, open_table
from tests.support.processes.waiting import until
from tests.support.spark.table_runs import paths, stored_paths
from tests.support.spark.table_writers import TableWriter, check_claims, check_content

pytestmark = pytest.mark.long

ROLES = ("load", "load", "compact", "collect")
KINDS = {"load", "compact"}


def kill_often(table: Table, claims: Path, randomness: random.Random, kills: int) -> None:
    """Let several processes write a table, and kill one at a time at random points.

    At the end, the remaining processes run until there are commits of every kind: on a busy
    machine, the process that compacts may have been killed before each of its commits.
    """
    claims.mkdir()
    writers = [TableWriter(role, table.store.uri, claims, randomness) for role in ROLES]
    try:
        for _ in range(kills):
            for member in writers:
                member.start()
            wanted = table.head().version + randomness.randint(1, 3)

            def is_reached(wanted: int = wanted) -> bool:
                return table.head().version >= wanted

            until(is_reached, f"version {wanted}")
            randomness.choice(writers).kill()
            head = table.head()
            assert head.records == head.position["end"]
        until(lambda: has_every_kind(table, writers), "commits of every kind")
    finally:
        for member in writers:
            member.kill()


def has_every_kind(table: Table, writers: Sequence[TableWriter]) -> bool:
    for member in writers:
        member.start()
    return {commit.kind for commit in table.commits()} >= KINDS


def test_a_table_matches_its_position_despite_kills(tmp_path: Path) -> None:
    table, claims = open_table(str(tmp_path / "table")), tmp_path / "claims"
    kill_often(table, claims, random.Random(1), kills=20)
    check_content(table, table.head())
    check_claims(table, claims)
    # Only files of dead runs are deleted.
    table.delete_orphans(0.0, keep_s=0.0)
    assert stored_paths(table) == paths(table.head())
    check_content(table, table.head())
    assert not [file for file in table.store.list("_commits") if file.path.endswith(".tmp")]
