"""A stream-stream join of deliveries with their outcomes.

`delivery_log` is joined with `delivery_outcomes` on the position of the delivery: origin, partition
and offset. An event waits for its outcome until the watermark has passed its event time plus
`within_s`; without one by then, its row has no outcome. An event has one row, with its first
outcome; while it waits for a scheduled retry, it has none. Spark silently drops an event that
arrives behind the watermark; `delivery-report`, which reads the loaded records, includes it.

Mirrored events are skipped: their outcomes have positions in another log, and they are joined
there.

The watermark is the minimum of both streams. While one of them has no new records, no rows are
added, and rows without an outcome are added only after outcomes of later events.

Source: the 2011 paper, section 6, future work: joins over streams.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import DELIVERY_JOIN, QUARANTINE
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.delivery_columns import parse_deliveries, parse_outcomes
from spark_jobs.jobs.delivery_records import DELIVERY_LOG, DELIVERY_OUTCOMES, Outcome
from spark_jobs.jobs.parsing import parsed_rows, quarantine_rows
from spark_jobs.jobs.streaming import StreamRun, StreamSource, StreamTable, compute_only

if TYPE_CHECKING:
    from pyspark.sql import Column

KIND: Final = "delivery-join"

AHEAD_S: Final = 300
"""How far an event time may be ahead of the clock, and so later than its outcome."""

_DELIVERY_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_OUTCOME_COLUMNS: Final = _DELIVERY_COLUMNS.removeprefix("key binary, ")

_OUTCOME_PLACE: Final = ("owedPartition", "owedOffset")
_OUTCOME_MEMBERS: Final = (
    *("outcome", "attempts", "status", "settledTime"),
    *("reason", "durationMs", "server"),
)

_QUARANTINED: Final = "quarantined"


class JoinedBatch(NamedTuple):
    """The counts of a micro-batch."""

    batch: int
    settled: int
    """Events with an outcome."""

    unsettled: int
    """Events without an outcome in time."""

    unread: int
    """Records that could not be parsed, which are in the quarantine."""


@dataclass(frozen=True, slots=True)
class DeliveryJoin:
    """The input of the join, how long events wait, and the output tables."""

    source: StreamSource
    run: StreamRun
    table: str
    quarantine_table: str
    origin: str
    within_s: int
    watermark_s: int

    def __post_init__(self) -> None:
        """Check the condition for one row per event.

        Raises:
            InvalidOption: a second outcome could arrive after the first one was forgotten.
        """
        if self.watermark_s < self.within_s + AHEAD_S:
            raise InvalidOption(
                f"--watermark is {self.watermark_s} s; allowed are at least --within plus "
                f"{AHEAD_S} s, {self.within_s + AHEAD_S} s: else an event could have two rows"
            )

    def run_query(self, spark: SparkSession, on_batch: Callable[[JoinedBatch], object]) -> None:
        """Run the query until it ends, and call `on_batch` after each micro-batch.

        Raises:
            InvalidOption: a table belongs to a query with another checkpoint.
            RunSuperseded: the same query is also running elsewhere.
            PipelineError: the log cannot be read.
        """
        rows = self.rows(
            self.source.read(spark, DELIVERY_LOG, _DELIVERY_COLUMNS),
            self.source.read(spark, DELIVERY_OUTCOMES, _OUTCOME_COLUMNS),
        )
        table = StreamTable(self.table, DELIVERY_JOIN, KIND, "eventTime")
        quarantine = StreamTable(self.quarantine_table, QUARANTINE, KIND, "timestamp")

        def add(batch: DataFrame, query: str, number: int) -> None:
            done = _add(table, quarantine, batch, query, number)
            if done is not None:
                on_batch(done)

        self.run.run(rows, add)

    def rows(self, log: DataFrame, outcomes: DataFrame) -> DataFrame:
        """Rows of the table's contract, and rows of the quarantine, which are marked as such."""
        deliveries = parse_deliveries(log, self.origin)
        outcome_rows = parse_outcomes(outcomes, self.origin)
        unread = quarantine_rows(deliveries).unionByName(quarantine_rows(outcome_rows))
        joined = self._joined(parsed_rows(deliveries), parsed_rows(outcome_rows))
        return joined.withColumn(_QUARANTINED, sql.lit(False)).unionByName(
            unread.withColumn(_QUARANTINED, sql.lit(True)), allowMissingColumns=True
        )

    def _joined(self, deliveries: DataFrame, outcomes: DataFrame) -> DataFrame:
        delay = f"{self.watermark_s} seconds"
        events = (
            deliveries.where(sql.col("origin") == self.origin)
            .withColumnRenamed("timestamp", "eventTime")
            .withWatermark("eventTime", delay)
        )
        first = (
            outcomes.where((sql.col("origin") == self.origin) & ~sql.col("isWaiting"))
            .select(*_OUTCOME_PLACE, *_OUTCOME_MEMBERS)
            .withWatermark("settledTime", delay)
            .dropDuplicatesWithinWatermark(list(_OUTCOME_PLACE))
        )
        is_same = (sql.col("partition") == sql.col("owedPartition")) & (
            sql.col("offset") == sql.col("owedOffset")
        )
        is_in_time = sql.expr(
            f"settledTime >= eventTime - interval {AHEAD_S} seconds and "
            f"settledTime <= eventTime + interval {self.within_s} seconds"
        )
        delay_ms = sql.unix_millis("settledTime") - sql.unix_millis("eventTime")
        added = {
            "delayMs": delay_ms,
            "date": sql.to_date("eventTime"),
            "deliveryStatus": _delivery_status(),
        }
        joined = events.join(first, is_same & is_in_time, "left")
        return joined.withColumns(added).select(*DELIVERY_JOIN.names)


def _delivery_status() -> "Column":
    """The status that the API shows for the column `outcome`; null without an outcome."""
    outcome = sql.col("outcome")
    return (
        sql.when(outcome == Outcome.DELIVERED.value, "succeeded")
        .when(outcome == Outcome.FAILED.value, "failed")
        .when(outcome.isNotNull(), "skipped")
    )


def _add(
    table: StreamTable, quarantine: StreamTable, rows: DataFrame, query: str, batch: int
) -> JoinedBatch | None:
    """Add a micro-batch; None if it was added before, or is empty."""
    base = table.base_for(query, batch)
    if base is None:
        compute_only(rows)
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
    """The number of rows by whether they are quarantined, and whether they have an outcome."""
    kinds = rows.groupBy(_QUARANTINED, sql.col("outcome").isNotNull().alias("isSettled")).count()
    return {(row[_QUARANTINED], row["isSettled"]): row["count"] for row in kinds.collect()}
