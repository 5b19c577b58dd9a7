"""Reading tables with Spark by their commits."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from spark_jobs.errors import InvalidOption
from spark_jobs.tables import DataFile, Table, open_table, read_table
from tests.support.spark.hdfs_server import TEST_TIMEOUT_S, HdfsServer

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]

BEFORE = (
    StructType()
    .add("topic", StringType())
    .add("timestamp", TimestampType())
    .add("offset", LongType())
)
CONTRACT = StructType(BEFORE.fields).add("schemaId", LongType())
"""A column came later."""

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
NAMES = ["topic", "timestamp", "offset", "schemaId"]
KINDS = [pa.string(), pa.timestamp("us", tz="UTC"), pa.int64(), pa.int64()]


def row(topic: str, hour: float, offset: int, schema_id: int | None = None) -> tuple[Any, ...]:
    moment = datetime.fromtimestamp((START_MS + hour * HOUR_MS) / 1_000, UTC)
    return topic, moment, offset, schema_id


def commit(table: Table, *files: Sequence[tuple[Any, ...]], columns: int = 4) -> None:
    """Commit a file per list of rows, each of one topic, with the first columns."""
    run = table.new_run("load")
    added = []
    for number, rows in enumerate(files):
        path = f"{run.folder}/{number}.parquet"
        arrays = map(pa.array, list(zip(*rows, strict=True))[:columns], KINDS[:columns])
        with table.store.create(path) as stream:
            pq.write_table(pa.table(list(arrays), NAMES[:columns]), stream)
            size = stream.tell()
        times_ms = [round(moment.timestamp() * 1_000) for _, moment, _, _ in rows]
        added.append(
            DataFile(
                path,
                len(rows),
                size,
                topic=rows[0][0],
                time_min_ms=min(times_ms),
                time_max_ms=max(times_ms),
            )
        )
    head = table.head()
    table.commit(head, run=run, position={"end": head.version + 1}, added=added)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((r.topic, r.offset, r.schemaId) for r in frame.collect())


def test_a_table_is_read_by_its_commits(spark: SparkSession, tmp_path: Path) -> None:
    # Names with the special characters of patterns and URIs.
    table = open_table(str(tmp_path / "lake [a-z]{1} %20*?\\x/re cords"))

    empty = read_table(spark, table.store.uri, CONTRACT, topics=["events"], start_ms=0)
    assert (empty.schema, empty.count()) == (CONTRACT, 0)

    commit(table, [row("events", 0, 0), row("events", 0.5, 1)], [row("clicks", 0, 0)], columns=3)
    begun = read_table(spark, table.store.uri, CONTRACT)
    commit(
        table,
        [row("events", 1, 2, 7), row("events", 1.5, 3, 7)],
        [row("events", 2, 4, 7)],
        [row("clicks", 2, 1, 8)],
    )
    # Uncommitted and incomplete files.
    stray = table.new_run("load").folder
    table.store.create_if_absent(f"{stray}/0.parquet", b"PAR1 and no more")

    frame = read_table(spark, table.store.uri, CONTRACT)
    assert [field.name for field in frame.schema] == CONTRACT.names
    assert rows_of(frame) == [
        *[("clicks", 0, None), ("clicks", 1, 8)],
        *[("events", 0, None), ("events", 1, None)],
        *[("events", offset, 7) for offset in (2, 3, 4)],
    ]
    old = [("clicks", 0, None), ("events", 0, None), ("events", 1, None)]
    assert rows_of(begun) == rows_of(read_table(spark, table.store.uri, CONTRACT, version=1)) == old
    with pytest.raises(InvalidOption, match="version is 3; allowed are 0 to 2"):
        read_table(spark, table.store.uri, CONTRACT, version=3)

    some = read_table(
        spark,
        table.store.uri,
        CONTRACT,
        topics=["events", "others"],
        start_ms=START_MS + HOUR_MS // 2,
        end_ms=START_MS + 3 * HOUR_MS // 2,
    )
    assert rows_of(some) == [("events", 1, None), ("events", 2, 7)]
    assert len(some.inputFiles()) == 2
    with pytest.raises(InvalidOption, match="no column topic"):
        read_table(spark, table.store.uri, StructType([BEFORE["offset"]]), topics=["events"])


def test_many_files_are_listed_by_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "table"))
    commit(table, *[[row("events", 0, offset, 7)] for offset in range(100)])
    spark.sparkContext.setJobGroup("listing", "only what follows")
    frame = read_table(spark, table.store.uri, CONTRACT)
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("listing")]
    assert all(jobs)
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    spark.sparkContext.setJobGroup("tests", "all else")
    assert [stage.numTasks for stage in stages if stage] == [32]
    assert frame.count() == 100


def test_a_table_on_hdfs_is_read_by_spark(spark: SparkSession, hdfs: HdfsServer) -> None:
    table = open_table(f"{hdfs.uri}/lake [a]/records")
    commit(table, [row("events", 0, 0, 7)], [row("clicks", 0, 0, 8)])
    assert rows_of(read_table(spark, table.store.uri, CONTRACT)) == [
        ("clicks", 0, 8),
        ("events", 0, 7),
    ]
