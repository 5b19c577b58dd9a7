"""Files of derived tables."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.jobs import derived_tables
from spark_jobs.jobs.derived_tables import write_file
from spark_jobs.storage import open_store

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCHEMA = pa.schema([("name", pa.string()), ("time", pa.timestamp("us", tz="UTC"))])


def batch(*minutes: int | None) -> pa.RecordBatch:
    times = [None if each is None else NOON + timedelta(minutes=each) for each in minutes]
    return pa.RecordBatch.from_pydict({"name": list(map(str, minutes)), "time": times}, SCHEMA)


def test_all_batches_are_one_file_with_bounds_of_times(tmp_path: Path) -> None:
    (told,) = write_file(
        open_store(str(tmp_path)),
        "data/a.parquet",
        SCHEMA,
        [batch(5, 3), batch(), batch(9)],
        "time",
    )
    noon_ms = round(NOON.timestamp() * 1_000)
    assert told == {
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
    (told,) = write_file(store, "a.parquet", SCHEMA, [batch(None)], "time")
    assert "time_min_ms" not in told


def test_many_bytes_are_split_into_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_tables, "ROW_GROUP_BYTES", 1)
    write_file(open_store(str(tmp_path)), "a.parquet", SCHEMA, [batch(1), batch(2, 3)])
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert [file.metadata.row_group(each).num_rows for each in range(2)] == [1, 2]
