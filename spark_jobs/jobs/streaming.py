"""Streaming queries: what they read, how they run, and the tables that they append to.

A query may process a micro-batch several times, always with the same offsets and state. The
position of its table holds the query's id, which Spark keeps in the checkpoint, and the last
micro-batch that was added, so each one is added once.
"""

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.derived_tables import write_files
from spark_jobs.jobs.execution import raise_task_errors
from spark_jobs.tables import DataFile, Position, Snapshot, open_table

_POLL_S: Final = 1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_OTHER_STATE: Final = re.compile("STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE")

AddBatch = Callable[[DataFrame, str, int], None]
"""Takes a micro-batch, the id of its query, and its number."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """What a streaming query reads, and how much per micro-batch."""

    properties: Mapping[str, str] = field(repr=False)
    """Properties of the Kafka client."""

    starting_offsets: str = "earliest"
    """For a query without a checkpoint."""

    fail_on_data_loss: bool = True
    offsets_max: int | None = None
    """Maximum records of a micro-batch; None: unlimited."""

    def read(self, spark: SparkSession, topics: str, columns: str) -> DataFrame:
        """A stream of the records of some topics, with the columns of a DDL schema."""
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
    """How a query is run."""

    checkpoint: str
    """A folder, as a Hadoop path, for this query alone."""

    trigger_s: float | None
    """Interval between micro-batches; None: process what is available and end."""

    def run(self, rows: DataFrame, add: AddBatch) -> None:
        """Run a query in append mode until it ends or fails, or SIGINT or SIGTERM arrives.

        `add` may get a micro-batch repeatedly. The next run repeats a micro-batch that a signal
        interrupted.

        Raises:
            InvalidOption: the checkpoint has the state of a version with other columns.
            PipelineError: raised by `add`, a task or the source.
            TasksFailed: the query failed for another reason.
        """
        query_ids: list[str] = []
        started = threading.Event()

        def add_batch(batch: DataFrame, number: int) -> None:
            # The first micro-batch may start before `start` returns the query.
            started.wait()
            add(batch, query_ids[0], number)

        writer = rows.writeStream.foreachBatch(add_batch).outputMode("append")
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.trigger_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(self.trigger_s * 1_000)} milliseconds")
        with raise_task_errors(), self._refuse_other_state(), _stop_signals() as is_stopping:
            query = writer.start()
            query_ids.append(str(query.id))
            started.set()
            while not query.awaitTermination(_POLL_S):
                if is_stopping():
                    query.stop()
                    return

    @contextmanager
    def _refuse_other_state(self) -> Iterator[None]:
        """Explain the error of Spark when a version has changed the columns of a query's state."""
        try:
            yield
        except PySparkException as failure:
            if not _OTHER_STATE.search(str(failure)):
                raise
            raise InvalidOption(
                f"--checkpoint {self.checkpoint} has the state of another version of this job, "
                "which kept other columns; use a new --checkpoint and a new --table. The old table "
                "keeps its rows; the new one gets those of all events that the log still has"
            ) from failure


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Yields whether the process has received SIGINT or SIGTERM."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    # Python delivers signals to the main thread only.
    is_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, stop) for each in _SIGNALS} if is_main else {}
    try:
        yield stopping.is_set
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class StreamTable:
    """A table and the query that appends to it; compactions may commit in between."""

    def __init__(self, uri: str, contract: StructType, kind: str, time: str) -> None:
        """`time` is the column whose bounds are stored for each file."""
        self.uri = uri
        self._contract = contract
        self._kind = kind
        self._time = time
        self._table = open_table(uri)

    def base_for(self, query: str, batch: int) -> Snapshot | None:
        """The snapshot to which a micro-batch is to be added; None if it was added before.

        Raises:
            InvalidOption: the table belongs to another query or job.
        """
        head = self._table.head()
        if not head.position:
            return head
        owner = head.position.get("query")
        if owner is None:
            raise InvalidOption(f"table {self.uri} belongs to another job")
        if owner != query:
            raise InvalidOption(
                f"table {self.uri} belongs to query {owner}, not {query}; use the checkpoint that "
                "belongs to the table, or a new table with a new checkpoint"
            )
        return None if head.position["batch"] >= batch else head

    def add_once(self, query: str, batch: int, rows: DataFrame) -> None:
        """Add the rows of a micro-batch unless they were added before; raises as `add`."""
        base = self.base_for(query, batch)
        if base is not None:
            self.add(base, query, batch, rows)

    def add(
        self,
        base: Snapshot,
        query: str,
        batch: int,
        rows: DataFrame | None,
        *,
        more: Position | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> int:
        """Add the rows of a micro-batch to the snapshot of `base_for`; the number of rows.

        `more` is stored in the position. Without rows and without `more` there is no commit.

        Raises:
            RunSuperseded: the same query has added it elsewhere.
        """
        run = self._table.new_run(self._kind)
        added: tuple[DataFile, ...] = ()
        if rows is not None:
            added = write_files(rows, self.uri, run, self._contract, time=self._time)
        if added or more is not None:
            self._table.commit(
                base,
                run=run,
                position={"query": query, "batch": batch, **(more or {})},
                added=added,
                report=report,
                may_rebase=lambda _: True,
            )
        return sum(file.records for file in added)


def compute_only(rows: DataFrame) -> None:
    """Compute the rows of a micro-batch that was added before, and discard them.

    The computation updates the query's state. Without it, Spark fails the micro-batch, and the next
    one would continue without the state of this one.
    """
    rows.write.format("noop").mode("append").save()
