"""Jobs write only to tables of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.contracts import WINDOWED_COUNTS
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.derived_tables import open_report
from spark_jobs.jobs.load_position import write_position
from spark_jobs.jobs.streaming import StreamTable
from spark_jobs.log.planning import TopicPosition
from spark_jobs.tables import open_table

RAW = write_position({"orders": TopicPosition(None, {0: 5})}, {"orders": 0})
QUERY = {"query": "q-1", "batch": 3}


def kept_by(uri: str, position: Mapping[str, Any]) -> None:
    table = open_table(uri)
    run = table.new_run("some")
    table.commit(table.head(), run=run, position=position, added=())


@pytest.mark.parametrize(
    "position", [RAW, QUERY, {"day": "2026-11-21"}, {"day": "2026-11-21", "job": "delivery-report"}]
)
def test_a_report_is_not_written_to_the_table_of_another_job(
    tmp_path: Path, position: dict[str, Any]
) -> None:
    kept_by(str(tmp_path), position)
    with pytest.raises(
        InvalidOption, match="belongs to another job; audit needs a table of its own"
    ):
        open_report(str(tmp_path), "audit")


def test_a_report_is_written_to_its_own_or_a_new_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "audited")
    assert open_report(uri, "audit")[1].version == 0
    kept_by(uri, {"day": "2026-11-21", "job": "audit"})
    assert open_report(uri, "audit")[1].version == 1


def test_a_query_does_not_add_to_the_table_of_another_job(tmp_path: Path) -> None:
    uri = str(tmp_path)
    kept_by(uri, RAW)
    table = StreamTable(uri, WINDOWED_COUNTS, "windowed-counts", "windowStart")
    with pytest.raises(InvalidOption, match="belongs to another job"):
        table.base_for("q-1", 4)
    kept_by(uri, QUERY)
    assert table.base_for("q-1", 3) is None
    assert table.base_for("q-1", 4) is not None
    with pytest.raises(InvalidOption, match="belongs to query q-1, not q-2"):
        table.base_for("q-2", 4)
