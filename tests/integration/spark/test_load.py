"""Loads with real Spark: the table has each record of the log once."""

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from logbroker.client.raw import LATEST, RawCluster
from logbroker.embedded import EmbeddedBroker
from spark_jobs.contracts import RECORDS
from spark_jobs.errors import (
    DataLost,
    InvalidOption,
    RunSuperseded,
    TopicReplaced,
)
from spark_jobs.jobs.compact import compact
from spark_jobs.jobs.load import load
from spark_jobs.jobs.load_task import LoadTask, load_range
from spark_jobs.offsets.limits import Matching
from spark_jobs.offsets.ranges import OffsetRange
from spark_jobs.tables import read_table
from tests.support.processes.waiting import until
from tests.support.spark.loaded_table import BEGIN_MS, LoadScene, call_before_session
from tests.support.spark.spark_session import kill_executor, kill_python_workers

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

HOUR_MS = 3_600_000


@pytest.fixture
def scene(broker: EmbeddedBroker, tmp_path: Path) -> LoadScene:
    return LoadScene(broker.bootstrap_servers, tmp_path)


def no_session() -> SparkSession:
    raise AssertionError("there is nothing to do for Spark")


def test_each_load_appends_new_records(spark: SparkSession, scene: LoadScene) -> None:
    scene.make_topic()
    scene.publish(3_000)
    first = scene.load(spark)
    assert (first.version, first.records) == (1, 3_000)
    assert scene.table_records() == scene.log_records()

    nothing = load(scene.request(), no_session)
    assert (nothing.version, nothing.records) == (None, 0)
    assert scene.table.head().version == 1

    # A new partition, and late records.
    scene.add_partitions("orders", 3)
    scene.publish(500, begin_ms=BEGIN_MS + 10 * HOUR_MS, partition=2)
    scene.publish(100, begin_ms=BEGIN_MS - 30 * HOUR_MS, partition=0)
    second = scene.load(spark)
    assert (second.version, second.records) == (2, 600)
    assert scene.table_records() == scene.log_records()

    # Every file has one hour of one partition, for all of Spark's readers.
    late = scene.table.head().files[-1]
    rows = read_table(spark, str(scene.table_folder), RECORDS)
    assert rows.count() == 3_600
    hours = rows.select(
        sql.date_trunc("hour", "timestamp") == sql.timestamp_add("HOUR", "hour", "date")
    )
    assert [row[0] for row in hours.distinct().collect()] == [True]
    day = datetime.fromtimestamp(BEGIN_MS / 1_000 - 30 * 3_600, UTC).date()
    assert rows.where(sql.col("date") == day).count() == 100
    assert any(file.date == str(day) for file in scene.table.head().files), late


def test_new_topics_of_a_pattern_are_loaded_from_their_first_offset(
    spark: SparkSession, scene: LoadScene
) -> None:
    scene.make_topic("orders-eu", 1)
    scene.make_topic("audit", 1)
    scene.publish(10, "orders-eu")
    scene.publish(10, "audit")
    pattern = {"choice": Matching(re.compile("^orders-")), "first_start": LATEST}
    # The first load starts at the end of the log, and stores that position.
    assert load(scene.request(**pattern), no_session).version == 1
    scene.publish(5, "orders-eu")
    scene.make_topic("orders-us", 1)
    scene.publish(7, "orders-us")
    assert scene.load(spark, **pattern).records == 12
    loaded = scene.table_records()
    assert {(each.topic, each.offset) for each in loaded} == {
        *(("orders-eu", offset) for offset in range(10, 15)),
        *(("orders-us", offset) for offset in range(7)),
    }
    with pytest.raises(InvalidOption, match=r"--topics has nowhere, which does not exist"):
        load(scene.request("orders-eu", "nowhere"), no_session)


def test_long_ranges_are_split_and_each_record_is_loaded_once(
    spark: SparkSession, scene: LoadScene
) -> None:
    scene.make_topic(partitions=1)
    scene.publish(2_000)
    report = scene.load(spark, records_max=300)
    assert len(report.outcomes) == 7
    assert {each.wanted.size for each in report.outcomes} == {285, 286}
    assert scene.table_records() == scene.log_records()


def test_the_second_of_two_concurrent_loads_is_rejected(
    spark: SparkSession, scene: LoadScene
) -> None:
    scene.make_topic()
    scene.publish(100)
    others: list[str] = []

    def another_load() -> None:
        scene.publish(20)
        others.append(scene.load(spark).run)

    with pytest.raises(RunSuperseded) as raised:
        load(scene.request(), call_before_session(another_load, spark))
    assert others[0] in str(raised.value)
    assert scene.table.head().version == 1
    assert scene.table_records() == scene.log_records()
    # The next load continues, and the files of the rejected one are orphans.
    scene.publish(10)
    assert scene.load(spark).records == 10
    assert scene.table_records() == scene.log_records()
    orphans = scene.data_files() - {file.path for file in scene.table.head().files}
    assert orphans
    assert scene.table.delete_orphans(0).files == len(orphans)
    assert scene.data_files() == {file.path for file in scene.table.head().files}


def test_small_files_are_merged_during_a_load(spark: SparkSession, scene: LoadScene) -> None:
    scene.make_topic()
    for _ in range(3):
        scene.publish(200, step_ms=1)
        scene.load(spark)
    before = scene.table.head()
    scene.publish(50, step_ms=1)

    def compaction() -> None:
        report = compact(str(scene.table_folder), lambda: spark)
        assert (report.merged, len(report.added)) == (len(before.files), 1)

    report = load(scene.request(), call_before_session(compaction, spark))
    assert (report.records, report.version) == (50, before.version + 2)
    head = scene.table.head()
    merged = [file for file in head.files if "merged" in file.path]
    assert [(file.records, file.topic, file.partition) for file in merged] == [
        (600, "orders", None)
    ]
    assert scene.table_records() == scene.log_records()
    assert read_table(spark, str(scene.table_folder), RECORDS).count() == 650

    # In the other order: the load commits first.
    def another_load() -> None:
        scene.publish(5, step_ms=1)
        scene.load(spark)

    late = compact(str(scene.table_folder), call_before_session(another_load, spark))
    assert late.version == head.version + 2
    assert scene.table_records() == scene.log_records()
    assert scene.load(spark).version is None
    # The second of two concurrent compactions is rejected.
    scene.publish(5, step_ms=1)
    scene.load(spark)
    with pytest.raises(RunSuperseded):
        compact(
            str(scene.table_folder),
            call_before_session(lambda: compact(str(scene.table_folder), lambda: spark), spark),
        )
    assert scene.table_records() == scene.log_records()
    assert compact(str(scene.table_folder), no_session).version is None


def test_deleted_offsets_stop_a_load_or_are_counted(spark: SparkSession, scene: LoadScene) -> None:
    scene.make_topic()
    scene.publish(100, partition=0)
    scene.publish(100, partition=1)
    scene.load(spark)
    scene.publish(100, partition=1)

    # Deleted during the load, and so detected by a task.
    def retention(before: int) -> None:
        scene.delete_records("orders", 1, before)

    with pytest.raises(DataLost, match=r"orders-1 \[100, 150\)"):
        load(scene.request(), call_before_session(lambda: retention(150), spark))

    # Offsets deleted earlier are detected before any task.
    scene.publish(100, partition=0)
    scene.delete_records("orders", 0, 130)
    with pytest.raises(DataLost, match=r"orders-0 \[100, 130\)"):
        load(scene.request(), no_session)
    assert scene.table.head().version == 1

    lossy = scene.request(may_lose=True)
    report = load(lossy, call_before_session(lambda: retention(170), spark))
    missing = [
        OffsetRange("orders", 0, 100, 130),
        OffsetRange("orders", 1, 100, 150),
        OffsetRange("orders", 1, 150, 170),
    ]
    assert (report.missing, report.missing_offsets, report.records) == (missing, 100, 100)
    (commit,) = scene.table.commits(1)
    assert commit.report["missingOffsets"] == 100
    assert {"topic": "orders", "partition": 0, "start": 100, "end": 130} in commit.report["missing"]
    assert scene.log_records() <= scene.table_records()
    assert sum(scene.table_records().values()) == 300


def test_a_recreated_topic_is_detected(spark: SparkSession, scene: LoadScene) -> None:
    scene.make_topic()
    scene.publish(40)
    scene.load(spark)
    old = scene.table_records()
    scene.delete_topic()
    scene.make_topic()
    # The same number of records: only the topic id differs.
    scene.publish(60)
    with pytest.raises(TopicReplaced, match="orders"):
        load(scene.request(), no_session)
    assert scene.table_records() == old
    report = scene.load(spark, may_lose=True)
    assert (report.replaced, report.records) == (["orders"], 60)
    assert scene.table_records() == old + scene.log_records()
    assert load(scene.request(), no_session).version is None


def task_of(scene: LoadScene, folder: str, wanted: OffsetRange, topic_id: UUID | None) -> LoadTask:
    return LoadTask(
        properties={"bootstrap.servers": scene.bootstrap_servers, "sasl.password": "secret-1"},
        table=str(scene.table_folder),
        folder=folder,
        ranges=[wanted],
        topic_ids={wanted.topic: topic_id},
        codec="zstd",
        may_lose=False,
        read_committed=False,
    )


def test_a_topic_recreated_after_planning_is_not_read(scene: LoadScene) -> None:
    scene.make_topic(partitions=1)
    with RawCluster({"bootstrap.servers": scene.bootstrap_servers}) as cluster:
        topic_id = cluster.topics(["orders"])["orders"].topic_id
    scene.delete_topic()
    scene.make_topic(partitions=1)
    # As many as planned: only the topic id differs.
    scene.publish(50)
    wanted = OffsetRange("orders", 0, 0, 50)
    task = task_of(scene, scene.table.new_run("load").folder, wanted, topic_id)
    outcome = load_range(task, wanted)
    assert "topic 'orders'" in (outcome.error or "")
    assert (outcome.records, outcome.files) == (0, ())
    assert not scene.data_files()
    assert "secret-1" not in repr(task)


def test_a_repeated_task_adds_no_duplicates(scene: LoadScene) -> None:
    scene.make_topic(partitions=1)
    scene.publish(500)
    run = scene.table.new_run("load")
    wanted = OffsetRange("orders", 0, 0, 500)
    task = task_of(scene, run.folder, wanted, None)
    first, second = load_range(task, wanted), load_range(task, wanted)
    assert first.records == second.records == 500
    assert not {file.path for file in first.files} & {file.path for file in second.files}
    # Spark accepts the outcome of one attempt, which is committed.
    base = scene.table.head()
    scene.table.commit(base, run=run, position={}, added=second.files)
    assert scene.table_records() == scene.log_records()


def test_damaged_batches_are_not_loaded(
    spark: SparkSession, scene: LoadScene, tmp_path: Path
) -> None:
    scene.make_topic(partitions=1)
    scene.publish(300)
    first = scene.log_records()
    scene.publish(40)
    (segment,) = tmp_path.glob("log/orders-0/*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(DataLost, match=r"orders-0 \[300, 340\): batch at 300: CRC"):
        scene.load(spark)
    assert scene.table.head().version == 0
    report = scene.load(spark, may_lose=True)
    assert report.missing == [OffsetRange("orders", 0, 300, 340)]
    assert scene.table_records() == first
    assert load(scene.request(), no_session).version is None


@pytest.mark.parametrize("kill", [kill_python_workers, kill_executor])
def test_killed_tasks_are_retried(
    spark: SparkSession, scene: LoadScene, kill: Callable[[SparkSession], None]
) -> None:
    scene.make_topic()
    scene.publish(60_000, value_bytes=500, step_ms=1)
    is_over = threading.Event()

    def fault() -> None:
        until(lambda: scene.data_files() or is_over.is_set(), "a task writes")
        kill(spark)

    thread = threading.Thread(target=fault)
    thread.start()
    scene.load(spark, records_max=15_000)
    is_over.set()
    thread.join()
    assert scene.table_records() == scene.log_records()
