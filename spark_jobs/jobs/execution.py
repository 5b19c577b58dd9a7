"""Spark actions of jobs: functions run in tasks, their errors, and cached frames."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import errors
from spark_jobs.errors import PipelineError, TasksFailed

_RAISED: Final = re.compile(r"^(?:spark_jobs\.)errors\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback."""


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """Raise the pipeline error that made a task fail, instead of Spark's own error.

    Raises:
        TasksFailed: tasks failed for another reason, such as lost executors.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        raise _pipeline_error(str(failure)) from failure


def _pipeline_error(text: str) -> PipelineError:
    raised = _RAISED.findall(text)
    if raised:
        name, message = raised[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PipelineError):
            return kind(message)
    return TasksFailed(f"tasks failed after all retries: {_reason(text)}")


def _reason(text: str) -> str:
    """The error of the last traceback, or else the first lines of Spark's message."""
    _, traceback, tail = text.rpartition("Traceback (most recent call last):")
    lines = (tail if traceback else text).splitlines()
    unindented = [line.strip() for line in lines if line.strip() and not line[0].isspace()]
    return " ".join(unindented[: 1 if traceback else 3])


@contextmanager
def cached(*frames: DataFrame) -> Iterator[None]:
    """Keep computed rows of the frames on the executors' disks within the context."""
    for frame in frames:
        frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield
    finally:
        for frame in frames:
            frame.unpersist()


def run_in_tasks(spark: SparkSession, count: int, run: Callable[[int], str]) -> list[str]:
    """The results of `run` for each index below `count`, each from a task of its own, unordered.

    Raises:
        PipelineError: a task failed, as in `raise_task_errors`.
    """

    def run_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"result": [run(index)]})

    with raise_task_errors():
        rows = spark.range(0, count, 1, count).mapInArrow(run_batches, "result string").collect()
    return [row.result for row in rows]
