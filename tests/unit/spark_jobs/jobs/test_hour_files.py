from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.contracts import RECORDS
from spark_jobs.decode.columns import arrow_schema
from spark_jobs.jobs.hour_files import HOURS_MAX, OPEN_FILES_MAX, HourFiles, schema_ids
from spark_jobs.jobs.record_files import ROW_GROUP_BYTES
from spark_jobs.storage import open_store
from spark_jobs.tables.manifest import DataFile

COLUMNS = arrow_schema(("offset", "timestamp", "timestampType", "key", "value", "headers"))
HOUR_MS = 3_600_000
MIB = 1 << 20


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def records(
    times_ms: Sequence[int], start: int = 0, values: Sequence[bytes | None] | None = None
) -> pa.RecordBatch:
    count = len(times_ms)
    return pa.RecordBatch.from_pydict(
        {
            "offset": range(start, start + count),
            "timestamp": [time_ms * 1_000 for time_ms in times_ms],
            "timestampType": [0] * count,
            "key": [None, b"k"][:count] + [b""] * (count - 2),
            "value": values or [b"v%d" % (start + i) for i in range(count)],
            "headers": [None, [{"key": "h", "value": b"\x00"}]][:count] + [None] * (count - 2),
        },
        schema=COLUMNS,
    )


def files_of(folder: Path, topic: str = "orders", codec: str = "zstd") -> HourFiles:
    return HourFiles(open_store(str(folder)), "data/run=1", topic, 3, codec)


def rows_of(folder: Path, files: Sequence[DataFile]) -> list[dict[str, object]]:
    return [row for file in files for row in pq.read_table(folder / file.path).to_pylist()]


def test_each_hour_has_a_file_including_those_of_late_records(tmp_path: Path) -> None:
    early, late = at("2026-03-01T10:59:59.999"), at("2026-03-01T11:00:00")
    with files_of(tmp_path) as writer:
        writer.add(records([early, late, early - 5]))
        writer.add(records([late + 1, early], start=7))
        written = writer.close()
    ten, eleven = sorted(written, key=lambda file: file.hour or 0)
    size = (tmp_path / ten.path).stat().st_size
    assert ten == DataFile(
        *(ten.path, 3, size, "orders", 3, "2026-03-01", 10, 0, 8, early - 5, early)
    )
    assert eleven[3:] == ("orders", 3, "2026-03-01", 11, 1, 7, late, late + 1)
    assert [row["offset"] for row in rows_of(tmp_path, [ten])] == [0, 2, 8]
    assert [row["offset"] for row in rows_of(tmp_path, [eleven])] == [1, 7]


def test_a_row_has_all_columns_of_the_raw_table(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add(records([at("2026-03-01T23:00:00")] * 2, values=[None, b"\0\0\0\1\2avro"]))
        rows = rows_of(tmp_path, writer.close())
    assert list(rows[0]) == RECORDS.names
    assert rows[1] == {
        "topic": "orders",
        "partition": 3,
        "offset": 1,
        "timestamp": datetime(2026, 3, 1, 23, tzinfo=UTC),
        "timestampType": 0,
        "key": b"k",
        "value": b"\0\0\0\1\2avro",
        "headers": [{"key": "h", "value": b"\0"}],
        "schemaId": 258,
        "date": datetime(2026, 3, 1, tzinfo=UTC).date(),
        "hour": 23,
    }
    assert (rows[0]["key"], rows[0]["value"], rows[0]["headers"], rows[0]["schemaId"]) == (
        *(None, None, None, None),
    )


@given(
    batches=st.lists(
        st.lists(
            st.integers(-(2**53), 2**53)
            | st.integers(0, 4 * HOUR_MS)
            | st.integers(at("9999-12-31T22:00:00"), at("9999-12-31T22:00:00") + 4 * HOUR_MS),
            min_size=2,
            max_size=9,
        ),
        max_size=6,
    )
)
def test_records_with_any_times_are_written_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("table")
    with files_of(folder) as writer:
        start = 0
        for times in batches:
            writer.add(records(times, start))
            start += len(times)
        written = writer.close()
    expected = [time for times in batches for time in times]
    found: dict[int, int] = {}
    for file in written:
        table = pq.read_table(folder / file.path)
        offsets = table["offset"].to_pylist()
        times = [us // 1_000 for us in table["timestamp"].cast(pa.int64()).to_pylist()]
        assert offsets == sorted(offsets)
        assert (file.offset_min, file.offset_max) == (offsets[0], offsets[-1])
        assert (file.time_min_ms, file.time_max_ms) == (min(times), max(times))
        assert file.records == len(offsets)
        if file.hour is not None:
            begin = at(f"{file.date}T{file.hour:02}:00:00")
            assert {time // HOUR_MS * HOUR_MS for time in times} == {begin}
        assert not found.keys() & set(offsets)
        found.update(zip(offsets, times, strict=True))
    assert [found[offset] for offset in range(len(expected))] == expected


@pytest.mark.long
def test_hours_beyond_the_limit_share_a_file(tmp_path: Path) -> None:
    hours = range(HOURS_MAX + 200)
    with files_of(tmp_path) as writer:
        writer.add(records([hour * HOUR_MS for hour in hours]))
        written = writer.close()
    assert len(written) == HOURS_MAX + 1
    shared = [file for file in written if file.hour is None]
    assert [(file.date, file.records, file.topic) for file in shared] == [(None, 200, "orders")]
    assert sum(file.records for file in written) == len(hours)


@pytest.mark.long
def test_memory_is_bounded_for_any_number_of_hours(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    most = 0
    with files_of(tmp_path, codec="none") as writer:
        for number in range(3 * OPEN_FILES_MAX):
            # One megabyte per hour, and one late record.
            times = [(number + 1) * HOUR_MS, 0]
            writer.add(records(times, number * 2, [bytes(MIB), b"late"]))
            most = max(most, pa.total_allocated_bytes() - before)
        written = writer.close()
    assert most < 2 * ROW_GROUP_BYTES + 8 * MIB
    assert sum(file.records for file in written) == 6 * OPEN_FILES_MAX
    groups = [pq.ParquetFile(tmp_path / file.path).metadata.num_row_groups for file in written]
    assert max(groups) < OPEN_FILES_MAX


def test_a_full_row_group_is_written(tmp_path: Path) -> None:
    with files_of(tmp_path, codec="none") as writer:
        for number in range(100):
            writer.add(records([0, 1], number * 2, [bytes(MIB), bytes(MIB)]))
        (file,) = writer.close()
    metadata = pq.ParquetFile(tmp_path / file.path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [
        64,
        64,
        64,
        8,
    ]


def test_an_error_deletes_open_files(tmp_path: Path) -> None:
    def fail() -> None:
        with files_of(tmp_path, codec="none") as writer:
            for number in range(40):
                writer.add(records([0, 1], number * 2, [bytes(MIB), bytes(MIB)]))
            assert list(tmp_path.rglob("*.parquet"))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert not list(tmp_path.rglob("*.parquet"))


def test_two_attempts_of_a_task_write_different_files(tmp_path: Path) -> None:
    paths = set()
    for _ in range(2):
        with files_of(tmp_path, topic="_schemas") as writer:
            writer.add(records([0, HOUR_MS]))
            paths |= {file.path for file in writer.close()}
    assert len(paths) == 4
    # Spark ignores files whose names begin with these.
    assert not [path for path in paths if Path(path).name[0] in "._"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b"", None),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0\0", 0),
        (b"\0\x7f\xff\xff\xff..", 2**31 - 1),
        (b"\0\x80\0\0\0", None),
        (b"\1\0\0\0\1", None),
        (b'{"a": 1}', None),
    ],
)
def test_avro_values_have_their_schema_id(value: bytes | None, expected: int | None) -> None:
    values = pa.array([b"\0\0\0\0\5x", value, b"\0\0\0\0\6x", value], pa.binary())
    assert schema_ids(values).to_pylist() == [5, expected, 6, expected]
    assert schema_ids(values.slice(1, 2)).to_pylist() == [expected, 6]


def test_null_values_have_no_schema_id() -> None:
    assert schema_ids(pa.nulls(3, pa.binary())).to_pylist() == [None] * 3
