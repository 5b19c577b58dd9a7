"""Reads a day of the raw table, and writes the report: two tables and a page."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import DELIVERY_HOURS, QUARANTINE, RECORDS
from spark_jobs.jobs.delivery_columns import parse_deliveries, parse_outcomes, parse_replays
from spark_jobs.jobs.delivery_records import DELIVERY_LOG, DELIVERY_OUTCOMES, REPLAY_OUTCOMES
from spark_jobs.jobs.delivery_report.aggregation import (
    day_report,
    hourly_rows,
    unique_events,
)
from spark_jobs.jobs.delivery_report.figures import DayReport
from spark_jobs.jobs.delivery_report.page import write_page
from spark_jobs.jobs.derived_tables import day_bounds_ms, open_source, replace_day
from spark_jobs.jobs.execution import cached, raise_task_errors
from spark_jobs.jobs.parsing import parsed_rows, quarantine_rows
from spark_jobs.tables import read_table

KIND: Final = "delivery-report"


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The inputs and outputs of a report; `origin` is the data centre of the loaded log."""

    table: str
    report_table: str
    quarantine_table: str
    page: Path
    origin: str

    def write_day(self, spark: SparkSession, day: date) -> "WrittenReport":
        """Write the report of a day, replacing an earlier one.

        Raises:
            InvalidOption: the raw table is missing.
            RunSuperseded: another run has written one of the tables.
            PipelineError: tasks failed.
        """
        source, head = open_source(self.table)
        position = {"source": {"uri": source.store.uri, "version": head.version}, "day": str(day)}
        common: dict[str, Any] = {"kind": KIND, "position": position}
        records = self._parse_topics(spark, day, head.version)
        with raise_task_errors(), cached(*records):
            unread = records.unread(day)
            summary: dict[str, Any] = {"day": str(day), "unread": unread.count()}
            replace_day(unread, self.quarantine_table, QUARANTINE, day, report=summary, **common)
            events = records.events(self.origin)
            hours = hourly_rows(events, parsed_rows(records.replays), day)
            with cached(events, hours):
                report = day_report(hours, events, day)
                summary |= {"webhooks": report.webhooks, **report.total.as_json()}
                replace_day(hours, self.report_table, DELIVERY_HOURS, day, report=summary, **common)
        name = f"{self.table}, version {head.version}"
        page = write_page(report, self.page, source=name, unread=summary["unread"])
        return WrittenReport(report, summary["unread"], page)

    def _parse_topics(self, spark: SparkSession, day: date, version: int) -> "_ParsedTopics":
        start_ms, end_ms = day_bounds_ms(day)

        def records(topic: str, end_ms: int | None = end_ms) -> DataFrame:
            return read_table(
                spark,
                self.table,
                RECORDS,
                topics=[topic],
                start_ms=start_ms,
                end_ms=end_ms,
                version=version,
            )

        return _ParsedTopics(
            parse_deliveries(records(DELIVERY_LOG), self.origin),
            # The timestamp of an outcome is the event time.
            parse_outcomes(records(DELIVERY_OUTCOMES), self.origin),
            # Replays run later than the events.
            parse_replays(records(REPLAY_OUTCOMES, None)),
        )


class WrittenReport(NamedTuple):
    """The report of a day, and where its page is."""

    report: DayReport
    unread: int
    """Unreadable records of the day, which are in the quarantine."""

    page: Path

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "day": self.report.day.isoformat(),
            "webhooks": self.report.webhooks,
            **self.report.total.as_json(),
            "unread": self.unread,
            "page": str(self.page),
        }


class _ParsedTopics(NamedTuple):
    """Rows of the three topics, as `parse_records` returns them."""

    deliveries: DataFrame
    outcomes: DataFrame
    replays: DataFrame

    def events(self, origin: str) -> DataFrame:
        return unique_events(parsed_rows(self.deliveries), parsed_rows(self.outcomes), origin)

    def unread(self, day: date) -> DataFrame:
        """The unreadable records of the day; replays of later days are in later reports."""
        deliveries, outcomes, replays = map(quarantine_rows, self)
        unread = deliveries.unionAll(outcomes).unionAll(replays)
        return unread.where(sql.col("date") == sql.lit(day))
