"""Runs the counting query, and adds each micro-batch to the tables and to a topic.

The order matters. Publishing or quarantining the same rows again after a crash is harmless, so the
commit that records the micro-batch is last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import QUARANTINE, WINDOWED_COUNTS
from spark_jobs.jobs.streaming import StreamRun, StreamSource, StreamTable, compute_only
from spark_jobs.jobs.windowed_counts.counting import COLUMNS, SEEN, UNREAD, WINDOW, count_windows
from spark_jobs.jobs.windowed_counts.ledger import WindowLedger
from spark_jobs.jobs.windowed_counts.publishing import publish
from spark_jobs.tables import Position

KIND: Final = "windowed-counts"


class CountedBatch(NamedTuple):
    """The counts of a micro-batch."""

    batch: int
    seen: int
    """Events."""

    late: int
    """Events found to be in no window, of this micro-batch or an earlier one."""

    windows: int
    """Rows added to the table: closed windows, by type."""

    unread: int
    """Records that could not be counted, which are in the quarantine."""


@dataclass(frozen=True, slots=True)
class WindowedCounts:
    """The input of the query, and the outputs for its counts."""

    source: StreamSource
    topics: str
    run: StreamRun
    table: str
    quarantine_table: str
    window_s: int
    watermark_s: int
    to_topic: str | None = None

    def run_query(self, spark: SparkSession, on_batch: Callable[[CountedBatch], object]) -> None:
        """Run the query until it ends, and call `on_batch` after each micro-batch.

        Raises:
            InvalidOption: a table belongs to a query with another checkpoint.
            RunSuperseded: the same query is also running elsewhere.
            PipelineError: the log cannot be read or written.
        """
        events = self.source.read(spark, self.topics, COLUMNS)
        rows = count_windows(events, window_s=self.window_s, watermark_s=self.watermark_s)
        table = StreamTable(self.table, WINDOWED_COUNTS, KIND, "windowStart")
        quarantine = StreamTable(self.quarantine_table, QUARANTINE, KIND, "timestamp")

        def add(batch: DataFrame, query: str, number: int) -> None:
            done = self._add(table, quarantine, batch, query, number)
            if done is not None:
                on_batch(done)

        self.run.run(rows, add)

    def _add(
        self, table: StreamTable, quarantine: StreamTable, rows: DataFrame, query: str, batch: int
    ) -> CountedBatch | None:
        """Add a micro-batch; None if it was added before, or is empty."""
        base = table.base_for(query, batch)
        if base is None:
            compute_only(rows)
            return None
        rows.persist()
        try:
            sums = _sums(rows)
            if not sums:
                return None
            unread = sums.pop((UNREAD, None), 0)
            if unread:
                quarantine.add_once(query, batch, _unread(rows))
            before = _ledger(base.position)
            after = before.after(_of_kind(sums, SEEN), _of_kind(sums, WINDOW))
            events = {"seen": after.seen - before.seen, "late": after.late - before.late}
            closed = self._closed(rows) if _of_kind(sums, WINDOW) else None
            self._publish(closed)
            windows = table.add(
                base,
                query,
                batch,
                closed,
                more={"ledger": after.as_json()},
                report={**events, "unread": unread},
            )
            return CountedBatch(batch, **events, windows=windows, unread=unread)
        finally:
            rows.unpersist()

    def _closed(self, rows: DataFrame) -> DataFrame:
        """The closed windows, with the table's columns and `startMs`."""
        start = sql.col("windowStart")
        end = sql.timestamp_micros(sql.unix_micros(start) + self.window_s * 1_000_000)
        return rows.where(sql.col("kind") == WINDOW).withColumns(
            {"windowEnd": end, "date": sql.to_date(start), "startMs": sql.unix_millis(start)}
        )

    def _publish(self, closed: DataFrame | None) -> None:
        if self.to_topic is not None and closed is not None:
            publish(closed, self.to_topic, self.source.properties, self.window_s)


def _ledger(position: Position) -> WindowLedger:
    return WindowLedger.from_json(position["ledger"]) if position else WindowLedger()


def _sums(rows: DataFrame) -> dict[tuple[str, int | None], int]:
    """Events by kind of row and window start in ms; unreadable records as one sum."""
    is_unread = sql.col("kind") == UNREAD
    start_ms = sql.when(~is_unread, sql.unix_millis("windowStart")).alias("startMs")
    events = sql.sum(sql.when(is_unread, 1).otherwise(sql.col("events"))).alias("events")
    sums = rows.groupBy("kind", start_ms).agg(events)
    return {(row["kind"], row["startMs"]): row["events"] for row in sums.collect()}


def _of_kind(sums: dict[tuple[str, int | None], int], kind: str) -> dict[int, int]:
    return {
        start_ms: events
        for (each, start_ms), events in sums.items()
        if each == kind and start_ms is not None
    }


def _unread(rows: DataFrame) -> DataFrame:
    """The uncountable records, with the columns of the quarantine."""
    return rows.where(sql.col("kind") == UNREAD).withColumn("date", sql.to_date("timestamp"))
