import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_jobs.tables import Table, open_table
from tests.support.processes.waiting import until
from tests.support.spark.table_runs import paths, stored_paths
from tests.support.spark.table_writers import Member, check_claims, check_content

pytestmark = pytest.mark.long

ROLES = ("load", "load", "compact", "collect")
KINDS = {"load", "compact"}


def kill_often(table: Table, claims: Path, chance: random.Random, kills: int) -> None:
    """Let a crew write a table, and kill one of them at a time, somewhere in what it does.

    At the end, those who are left go on until there are commits of every kind: on a busy machine
    the one that compacts may have been killed each time before it had any.
    """
    claims.mkdir()
    crew = [Member(role, table.store.uri, claims, chance) for role in ROLES]
    try:
        for _ in range(kills):
            for member in crew:
                member.start()
            wanted = table.head().version + chance.randint(1, 3)

            def is_reached(wanted: int = wanted) -> bool:
                return table.head().version >= wanted

            until(is_reached, f"version {wanted}")
            chance.choice(crew).kill()
            head = table.head()
            assert head.records == head.position["end"]
        until(lambda: has_every_kind(table, crew), "commits of every kind")
    finally:
        for member in crew:
            member.kill()


def has_every_kind(table: Table, crew: Sequence[Member]) -> bool:
    for member in crew:
        member.start()
    return {commit.kind for commit in table.commits()} >= KINDS


@pytest.mark.parametrize("seed", [1, 2])
def test_whoever_is_killed_the_table_has_exactly_what_its_position_says(
    tmp_path: Path, seed: int
) -> None:
    table, claims = open_table(str(tmp_path / "table")), tmp_path / "claims"
    kill_often(table, claims, random.Random(seed), kills=20)
    check_content(table, table.head())
    check_claims(table, claims)
    # What the dead left goes, and nothing else.
    table.delete_orphans(0.0, keep_s=0.0)
    assert stored_paths(table) == paths(table.head())
    check_content(table, table.head())
    assert not [file for file in table.store.list("_commits") if file.path.endswith(".tmp")]
