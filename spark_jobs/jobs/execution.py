"""What went wrong in a task, as an error of the pipeline: Spark hands over a text."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_jobs import errors
from spark_jobs.errors import PipelineError, TasksFailed

_RAISED: Final = re.compile(r"^(?:spark_jobs\.)errors\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """Raise the error of the pipeline that made a task fail, where Spark raises one of its own.

    Raises:
        TasksFailed: tasks failed for any other reason, such as executors that died.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        raise _plain(str(failure)) from failure


def _plain(text: str) -> PipelineError:
    raised = _RAISED.findall(text)
    if raised:
        name, message = raised[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PipelineError):
            return kind(message)
    return TasksFailed(f"tasks failed, more often than Spark may try them: {_reason(text)}")


def _reason(text: str) -> str:
    """What a task raised, by the last traceback; or else how Spark begins to tell of it."""
    _, traceback, told = text.rpartition("Traceback (most recent call last):")
    lines = (told if traceback else text).splitlines()
    unindented = [line.strip() for line in lines if line.strip() and not line[0].isspace()]
    return " ".join(unindented[: 1 if traceback else 3])


@contextmanager
def kept(*frames: DataFrame) -> Iterator[None]:
    """What was computed of the frames stays on the disks of the tasks' machines meanwhile."""
    for frame in frames:
        frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield
    finally:
        for frame in frames:
            frame.unpersist()
