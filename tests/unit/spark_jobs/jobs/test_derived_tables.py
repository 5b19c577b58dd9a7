"""Files and commits of derived tables: a job writes only to tables of its own."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.contracts import WINDOWED_COUNTS
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs import derived_tables
from spark_jobs.jobs.derived_tables import open_report, write_file
from spark_jobs.jobs.load_position import write_position
from spark_jobs.jobs.streaming import StreamTable
from spark_jobs.log.planning import TopicPosition
from spark_jobs.storage import open_store
from spark_jobs.tables import open_table

RAW = write_position({"orders": TopicPosition(None, {0: 5})}, {"orders": 0})
QUERY = {"query": "q-1", "batch": 3}


def commit_position(uri: str, position: Mapping[str, Any]) -> None:
    table = open_table(uri)
    run = table.new_run("some")
    table.commit(table.head(), run=run, position=position, added=())


@pytest.mark.parametrize(
    "position", [RAW, QUERY, {"day": "2026-11-21"}, {"day": "2026-11-21", "job": "delivery-report"}]
)
def test_a_report_is_not_written_to_the_table_of_another_job(
    tmp_path: Path, position: dict[str, Any]
) -> None:
    commit_position(str(tmp_path), position)
    with pytest.raises(
        InvalidOption, match="belongs to another job; audit needs a table of its own"
    ):
        open_report(str(tmp_path), "audit")


def test_a_report_is_written_to_its_own_or_a_new_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "audited")
    assert open_report(uri, "audit")[1].version == 0
    commit_position(uri, {"day": "2026-11-21", "job": "audit"})
    assert open_report(uri, "audit")[1].version == 1


def test_a_query_does_not_add_to_the_table_of_another_job(tmp_path: Path) -> None:
    uri = str(tmp_path)
    commit_position(uri, RAW)
    table = StreamTable(uri, WINDOWED_COUNTS, "windowed-counts", "windowStart")
    with pytest.raises(InvalidOption, match="belongs to another job"):
        table.base_for("q-1", 4)
    commit_position(uri, QUERY)
    assert table.base_for("q-1", 3) is None
    assert table.base_for("q-1", 4) is not None
    with pytest.raises(InvalidOption, match="belongs to query q-1, not q-2"):
        table.base_for("q-2", 4)


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCHEMA = pa.schema([("name", pa.string()), ("time", pa.timestamp("us", tz="UTC"))])


def batch(*minutes: int | None) -> pa.RecordBatch:
    times = [None if each is None else NOON + timedelta(minutes=each) for each in minutes]
    return pa.RecordBatch.from_pydict({"name": list(map(str, minutes)), "time": times}, SCHEMA)


def test_all_batches_are_one_file_with_bounds_of_times(tmp_path: Path) -> None:
    (fields,) = write_file(
        open_store(str(tmp_path)),
        "data/a.parquet",
        SCHEMA,
        [batch(5, 3), batch(), batch(9)],
        "time",
    )
    noon_ms = round(NOON.timestamp() * 1_000)
    assert fields == {
        "path": "data/a.parquet",
        "records": 3,
        "bytes": (tmp_path / "data/a.parquet").stat().st_size,
        "time_min_ms": noon_ms + 3 * 60_000,
        "time_max_ms": noon_ms + 9 * 60_000,
    }
    table = pq.read_table(tmp_path / "data/a.parquet")
    assert table.column("name").to_pylist() == ["5", "3", "9"]
    assert pq.ParquetFile(tmp_path / "data/a.parquet").num_row_groups == 1


def test_no_rows_write_no_file(tmp_path: Path) -> None:
    assert write_file(open_store(str(tmp_path)), "data/a.parquet", SCHEMA, [batch()]) == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_without_a_time_have_no_bounds(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    (fields,) = write_file(store, "a.parquet", SCHEMA, [batch(None)], "time")
    assert "time_min_ms" not in fields


def test_many_bytes_are_split_into_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_tables, "ROW_GROUP_BYTES", 1)
    write_file(open_store(str(tmp_path)), "a.parquet", SCHEMA, [batch(1), batch(2, 3)])
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert [file.metadata.row_group(each).num_rows for each in range(2)] == [1, 2]
