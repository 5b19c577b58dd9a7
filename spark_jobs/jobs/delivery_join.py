"""A join of two streams: each event that was owed, with what became of it, while it happens.

`delivery_log` is joined with `delivery_outcomes` on the place of the event: origin, partition and
offset. An event waits for its outcome for as long as `within_s` after its own time, and a bit
longer until the watermark has passed that; what has none by then was not settled in time. An event
has one row, by its first outcome: who is to say when it was settled cannot wait for another. One
that comes when the watermark has passed its own time already is too late for any, and Spark drops
it without telling anybody: `delivery-report`, which reads what was loaded, has it.

What a mirror brought is left out: its outcomes name places in another log, where it is joined.

The watermark is the least of both streams. So the table stands still while one of them does, and
rows without an outcome come once later events have outcomes.

Source: the 2011 paper, section 6, which leaves joins of streams to the future.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import DELIVERY_JOIN, QUARANTINE
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.delivery_columns import owed, settled
from spark_jobs.jobs.delivery_records import DELIVERY_LOG, DELIVERY_OUTCOMES
from spark_jobs.jobs.parsing import set_aside, taken
from spark_jobs.jobs.streaming import StreamRun, StreamSource, StreamTable, pass_over

KIND: Final = "delivery-join"

AHEAD_S: Final = 300
"""How far ahead of the clock an event's time may be: so much before it, it may be settled."""

_OWED_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_SETTLED_COLUMNS: Final = _OWED_COLUMNS.removeprefix("key binary, ")

_QUARANTINED: Final = "quarantined"


class JoinedBatch(NamedTuple):
    """What a micro-batch brought."""

    batch: int
    settled: int
    """Events with their outcome."""

    unsettled: int
    """Events that were not settled in time."""

    unread: int
    """Records that could not be read; the quarantine has them."""


@dataclass(frozen=True, slots=True)
class DeliveryJoin:
    """What is joined, how long events wait, and where the rows go."""

    source: StreamSource
    run: StreamRun
    table: str
    quarantine_table: str
    origin: str
    within_s: int
    watermark_s: int

    def __post_init__(self) -> None:
        """Check what an event's one row depends on.

        Raises:
            InvalidOption: an outcome could come again after the first one was forgotten.
        """
        if self.watermark_s < self.within_s + AHEAD_S:
            raise InvalidOption(
                f"--watermark is {self.watermark_s} s; allowed is --within, {self.within_s} s, and "
                f"{AHEAD_S} s or more: by then a second outcome of an event cannot count any more"
            )

    def join(self, spark: SparkSession, tell: Callable[[JoinedBatch], object]) -> None:
        """Join until the query ends, and tell of each micro-batch once it is done.

        Raises:
            InvalidOption: a table belongs to a query with another checkpoint.
            RunSuperseded: the same query runs somewhere else.
            PipelineError: the log cannot be read.
        """
        rows = self.rows(
            self.source.read(spark, DELIVERY_LOG, _OWED_COLUMNS),
            self.source.read(spark, DELIVERY_OUTCOMES, _SETTLED_COLUMNS),
        )
        table = StreamTable(self.table, DELIVERY_JOIN, KIND, "eventTime")
        quarantine = StreamTable(self.quarantine_table, QUARANTINE, KIND, "timestamp")

        def add(batch: DataFrame, query: str, number: int) -> None:
            done = _add(table, quarantine, batch, query, number)
            if done is not None:
                tell(done)

        self.run.run(rows, add)

    def rows(self, log: DataFrame, outcomes: DataFrame) -> DataFrame:
        """Rows by the contract of the table, and those of the quarantine, which are marked so."""
        owed_here, told = owed(log, self.origin), settled(outcomes, self.origin)
        unread = set_aside(owed_here).unionByName(set_aside(told))
        joined = self._joined(taken(owed_here), taken(told))
        return joined.withColumn(_QUARANTINED, sql.lit(False)).unionByName(
            unread.withColumn(_QUARANTINED, sql.lit(True)), allowMissingColumns=True
        )

    def _joined(self, owed_here: DataFrame, told: DataFrame) -> DataFrame:
        delay = f"{self.watermark_s} seconds"
        events = (
            owed_here.where(sql.col("origin") == self.origin)
            .withColumnRenamed("timestamp", "eventTime")
            .withWatermark("eventTime", delay)
        )
        first = (
            told.where(sql.col("origin") == self.origin)
            .select("owedPartition", "owedOffset", "outcome", "attempts", "status", "settledTime")
            .withWatermark("settledTime", delay)
            .dropDuplicatesWithinWatermark(["owedPartition", "owedOffset"])
        )
        is_same = (sql.col("partition") == sql.col("owedPartition")) & (
            sql.col("offset") == sql.col("owedOffset")
        )
        is_in_time = sql.expr(
            f"settledTime >= eventTime - interval {AHEAD_S} seconds and "
            f"settledTime <= eventTime + interval {self.within_s} seconds"
        )
        delay_ms = sql.unix_millis("settledTime") - sql.unix_millis("eventTime")
        joined = events.join(first, is_same & is_in_time, "left")
        return joined.withColumns({"delayMs": delay_ms, "date": sql.to_date("eventTime")}).select(
            *DELIVERY_JOIN.names
        )


def _add(
    table: StreamTable, quarantine: StreamTable, rows: DataFrame, query: str, batch: int
) -> JoinedBatch | None:
    """Add a micro-batch; None if it was added before, or has nothing in it."""
    base = table.before(query, batch)
    if base is None:
        pass_over(rows)
        return None
    rows.persist()
    try:
        counts = _counts(rows)
        if not counts:
            return None
        unread = counts.get((True, False), 0)
        if unread:
            quarantine.add_once(query, batch, rows.where(_QUARANTINED))
        in_time, not_in_time = (counts.get((False, is_settled), 0) for is_settled in (True, False))
        done = JoinedBatch(batch, in_time, not_in_time, unread)
        if done.settled or done.unsettled:
            report = {name: count for name, count in done._asdict().items() if name != "batch"}
            table.add(base, query, batch, rows.where(~sql.col(_QUARANTINED)), report=report)
        return done
    finally:
        rows.unpersist()


def _counts(rows: DataFrame) -> dict[tuple[bool, bool], int]:
    """How many rows there are, by whether they are quarantined, and have an outcome."""
    kinds = rows.groupBy(_QUARANTINED, sql.col("outcome").isNotNull().alias("isSettled")).count()
    return {(row[_QUARANTINED], row["isSettled"]): row["count"] for row in kinds.collect()}
