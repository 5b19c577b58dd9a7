"""Streaming queries of jobs: what they read, and how they run and end."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.derived_tables import write_files
from spark_jobs.jobs.execution import told_plainly
from spark_jobs.tables import DataFile, Position, Snapshot, open_table

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


class StreamTable:
    """One table, and one query that adds to it; compactions may come between."""

    def __init__(self, uri: str, contract: StructType, kind: str, time: str) -> None:
        """`time` is the column whose bounds are told of each file."""
        self.uri = uri
        self._contract = contract
        self._kind = kind
        self._time = time
        self._table = open_table(uri)

    def before(self, query: str, batch: int) -> Snapshot | None:
        """The table, to add a micro-batch to; None where it has that one already.

        Raises:
            InvalidOption: another query has added to the table, so it counted what this one will.
        """
        head = self._table.head()
        if not head.position:
            return head
        owner = head.position.get("query")
        if owner is None:
            raise InvalidOption(f"table is {self.uri}, which another job keeps")
        if owner != query:
            raise InvalidOption(
                f"table is {self.uri}, which is of query {owner}, and this is "
                f"{query}: its checkpoint is another one; go on with the checkpoint that belongs "
                "to the table, or begin a new table with a new checkpoint"
            )
        return None if head.position["batch"] >= batch else head

    def add_once(self, query: str, batch: int, rows: DataFrame) -> None:
        """Add the rows of a micro-batch, unless a run before has done so; raises as `add`."""
        base = self.before(query, batch)
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
        """Add the rows of a micro-batch to what `before` gave, and how many they are.

        `more` is kept in the position. Without rows, and with nothing to keep, there is no commit.

        Raises:
            RunSuperseded: the same query added it meanwhile, somewhere else.
        """
        run = self._table.new_run()
        added: tuple[DataFile, ...] = ()
        if rows is not None:
            added = write_files(rows, self.uri, run, self._contract, time=self._time)
        if added or more is not None:
            self._table.commit(
                base,
                kind=self._kind,
                run=run,
                position={"query": query, "batch": batch, **(more or {})},
                added=added,
                report=report,
                may_rebase=lambda _: True,
            )
        return sum(file.records for file in added)


def pass_over(rows: DataFrame) -> None:
    """Compute a micro-batch that a table has already, and do nothing with its rows.

    The query's own state is kept by computing them: Spark fails a micro-batch that nobody asked for
    all rows of, and the next one would go on without the state of this one.
    """
    rows.write.format("noop").mode("append").save()
