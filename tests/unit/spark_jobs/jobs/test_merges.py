import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.errors import CorruptTable
from spark_jobs.jobs.compact import merge_files
from spark_jobs.jobs.merges import Merge, plan_merges
from spark_jobs.jobs.record_files import open_writer
from spark_jobs.storage import open_store
from spark_jobs.tables import DataFile

MIB = 1 << 20


def small(path: str, size: int = MIB, **fields: Any) -> DataFile:
    place = {"topic": "a", "partition": 0, "date": "2026-03-01", "hour": 7, **fields}
    return DataFile(path, 1, size)._replace(**place)


def paths(merges: Sequence[Merge]) -> list[list[str]]:
    return [[file.path for file in merge.files] for merge in merges]


def test_files_of_one_topic_day_and_hour_are_merged_in_the_order_of_their_rows() -> None:
    files = [
        small("late", partition=1, offset_min=9, offset_max=9),
        small("1", partition=1, offset_min=2, offset_max=5),
        small("0", partition=0, offset_min=70, offset_max=80),
        small("other hour", hour=8),
        small("other day", date="2026-03-02"),
        small("other topic", topic="b"),
    ]
    assert paths(plan_merges(files, small_bytes=2 * MIB)) == [["0", "1", "late"]]


def test_large_files_are_not_merged() -> None:
    files = [small("1"), small("2", size=2 * MIB), small("3"), small("alone", hour=8)]
    assert paths(plan_merges(files, small_bytes=2 * MIB)) == [["1", "3"]]


def test_files_without_an_hour_or_topic_are_merged_separately() -> None:
    files = [
        small("any 1", date=None, hour=None, offset_min=1),
        small("derived 2", topic=None, partition=None, hour=None, time_min_ms=2),
        small("derived 1", topic=None, partition=None, hour=None, time_min_ms=1),
        small("any 2", date=None, hour=None, offset_min=2),
        small("midnight", hour=0),
    ]
    assert sorted(paths(plan_merges(files, small_bytes=2 * MIB))) == [
        ["any 1", "any 2"],
        ["derived 1", "derived 2"],
    ]


@given(sizes=st.lists(st.integers(1, 20), max_size=40), least=st.integers(1, 25))
def test_every_small_file_is_merged_once_into_bounded_files(sizes: list[int], least: int) -> None:
    files = [small(str(i), size, offset_min=i) for i, size in enumerate(sizes)]
    merges = plan_merges(files, small_bytes=least, merged_bytes_max=30)
    merged = [file.path for merge in merges for file in merge.files]
    assert len(merged) == len(set(merged))
    assert all(len(merge.files) > 1 for merge in merges)
    assert all(sum(file.bytes for file in merge.files) <= 30 for merge in merges)
    assert all(file.bytes < least for merge in merges for file in merge.files)
    # Unmerged files are too large to be merged with the next one.
    left = [file.bytes for file in files if file.bytes < least and file.path not in merged]
    assert len(left) <= 2 * sum(size for size in sizes) // 30 + 1


def test_a_merged_file_has_the_combined_statistics() -> None:
    bounds = {"offset_min": 3, "offset_max": 9, "time_min_ms": 10, "time_max_ms": 20}
    first = small("1", **bounds)
    other = small("2", partition=1, offset_min=1, offset_max=5, time_min_ms=12, time_max_ms=30)
    merged = Merge((first, other)).merged
    assert merged[1:2] + merged[3:] == (2, "a", None, "2026-03-01", 7, 1, 9, 10, 30)
    assert Merge((first, first)).merged.partition == 0
    assert Merge((first, small("3"))).merged.offset_min is None


def written(folder: Path, table: pa.Table, row_group_size: int | None = None) -> DataFile:
    path = f"data/{uuid.uuid4()}.parquet"
    (folder / "data").mkdir(exist_ok=True)
    with (folder / path).open("wb") as stream, open_writer(stream, table.schema, "zstd") as writer:
        writer.write_table(table, row_group_size=row_group_size)
    return DataFile(path, len(table), (folder / path).stat().st_size)


def test_older_rows_have_nulls_in_an_added_column(tmp_path: Path) -> None:
    old = pa.table({"offset": [1, 2], "value": [b"a", None]})
    new = pa.table({"offset": [3], "value": [b"c"], "more": ["x"]})
    merge = Merge((written(tmp_path, old), written(tmp_path, new)))
    merged = merge_files(open_store(str(tmp_path)), "data/run=1", merge)
    assert merged.bytes == (tmp_path / merged.path).stat().st_size
    assert pq.read_table(tmp_path / merged.path).to_pylist() == [
        {"offset": 1, "value": b"a", "more": None},
        {"offset": 2, "value": None, "more": None},
        {"offset": 3, "value": b"c", "more": "x"},
    ]


def test_a_file_with_a_wrong_record_count_is_not_merged(tmp_path: Path) -> None:
    file = written(tmp_path, pa.table({"offset": [1, 2]}))
    merge = Merge((file, file._replace(records=3)))
    with pytest.raises(CorruptTable, match=r"has 2 records, but the table states 3"):
        merge_files(open_store(str(tmp_path)), "data/run=1", merge)
    assert not list(tmp_path.glob("data/run=1/*"))


def test_merged_files_are_merged_again_in_row_order(tmp_path: Path) -> None:
    def rows(*places: tuple[int, int]) -> DataFile:
        table = pa.table({"partition": [p for p, _ in places], "offset": [o for _, o in places]})
        partition = places[0][0] if len({p for p, _ in places}) == 1 else None
        offsets = [offset for _, offset in places]
        return written(tmp_path, table)._replace(
            topic="a", partition=partition, offset_min=min(offsets), offset_max=max(offsets)
        )

    merge = Merge((rows((0, 5), (0, 6), (1, 2)), rows((0, 7)), rows((1, 1)), rows((2, 0), (3, 0))))
    merged = merge_files(open_store(str(tmp_path)), "data/run=1", merge)
    found = pq.read_table(tmp_path / merged.path)
    assert list(zip(*found.to_pydict().values(), strict=True)) == [
        *((0, 5), (0, 6), (0, 7), (1, 1), (1, 2), (2, 0), (3, 0)),
    ]


def test_merging_reads_and_writes_one_row_group_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.jobs.compact.ROW_GROUP_BYTES", 50_000)
    tables = [
        pa.table({"offset": range(start, start + 100), "value": [bytes(1_000)] * 100})
        for start in (0, 100)
    ]
    files = tuple(written(tmp_path, table, row_group_size=20) for table in tables)
    merged = merge_files(open_store(str(tmp_path)), "data/run=1", Merge(files))
    found = pq.ParquetFile(tmp_path / merged.path)
    sizes = [found.metadata.row_group(n).num_rows for n in range(found.num_row_groups)]
    # Row groups up to the size, never a whole file.
    assert sizes == [60, 60, 60, 20]
    assert found.read().column("offset").to_pylist() == list(range(200))
