"""Frames that a job asks more than once."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


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
