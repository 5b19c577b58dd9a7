"""The Spark session of the tests: tasks in other processes, which may be killed."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.processes.waiting import until
from tests.support.spark.spark_session import executors, kill_executor

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]


def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": batch["id"], "pid": [os.getpid()] * len(batch)})


def test_tasks_survive_a_killed_executor(spark: SparkSession) -> None:
    rows = spark.range(0, 4, 1, 4).mapInArrow(parents, "id long, pid long")
    assert sorted(row.id for row in rows.collect()) == [0, 1, 2, 3]
    assert os.getpid() not in {row.pid for row in rows.collect()}
    until(lambda: len(executors(spark)) == 1, "an executor")
    (first,) = executors(spark)
    kill_executor(spark)
    assert sorted(row.id for row in rows.collect()) == [0, 1, 2, 3]
    (second,) = executors(spark)
    assert second.pid != first.pid
