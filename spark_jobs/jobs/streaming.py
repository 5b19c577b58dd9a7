"""Streaming queries of jobs: what they read, and how they run and end."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.jobs.task_errors import told_plainly

_LOOK_S: Final = 1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

AddBatch = Callable[[DataFrame, str, int], None]
"""Takes a micro-batch, the id of its query, and its number."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """Where a streaming query reads, and how much at a time."""

    properties: Mapping[str, str] = field(repr=False)
    """Of the Kafka client."""

    starting_offsets: str = "earliest"
    """Of a query that has no checkpoint yet."""

    fail_on_data_loss: bool = True
    offsets_max: int | None = None
    """A micro-batch has no more; None: whatever is there."""

    def read(self, spark: SparkSession, topics: str, columns: str) -> DataFrame:
        """A stream of the records of some topics, with some columns of a record, as DDL."""
        reader = (
            spark.readStream.format("rewind")
            .schema(columns)
            .options(
                subscribe=topics,
                includeHeaders="true",
                startingOffsets=self.starting_offsets,
                failOnDataLoss=str(self.fail_on_data_loss).lower(),
                **{f"kafka.{name}": value for name, value in self.properties.items()},
            )
        )
        if self.offsets_max is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.offsets_max)
        return reader.load()


@dataclass(frozen=True, slots=True)
class StreamRun:
    """How a query runs."""

    checkpoint: str
    """A folder of Hadoop's, of this query alone."""

    trigger_s: float | None
    """Time from one micro-batch to the next; None: all that is there now, and then the end."""

    def run(self, rows: DataFrame, add: AddBatch) -> None:
        """Run a query in append mode until it ends, fails, or is asked to by SIGINT or SIGTERM.

        `add` may get a micro-batch a second time. What it was given when it was asked to end is
        made again by the next run.

        Raises:
            PipelineError: one that `add` raised, or a task, or the source.
            TasksFailed: for any other reason.
        """
        query_ids: list[str] = []
        started = threading.Event()

        def add_batch(batch: DataFrame, number: int) -> None:
            # The first one may come before Spark says which query it is of.
            started.wait()
            add(batch, query_ids[0], number)

        writer = rows.writeStream.foreachBatch(add_batch).outputMode("append")
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.trigger_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(self.trigger_s * 1_000)} milliseconds")
        with told_plainly(), _asked_to_end() as is_asked:
            query = writer.start()
            query_ids.append(str(query.id))
            started.set()
            while not query.awaitTermination(_LOOK_S):
                if is_asked():
                    query.stop()
                    return


@contextmanager
def _asked_to_end() -> Iterator[Callable[[], bool]]:
    """Whether a signal has come that asks the process to end."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    # Signals go to the main thread alone; a caller on another one has its own way to end.
    is_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, ask) for each in _SIGNALS} if is_main else {}
    try:
        yield asked.is_set
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
