"""Reads a day of the raw table, and writes what became of it: two tables and a page."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import DELIVERY_HOURS, QUARANTINE, RECORDS
from spark_jobs.jobs.days import bounds_ms
from spark_jobs.jobs.delivery_columns import owed, replayed, settled
from spark_jobs.jobs.delivery_records import DELIVERY_LOG, DELIVERY_OUTCOMES, REPLAY_OUTCOMES
from spark_jobs.jobs.delivery_report.aggregation import (
    by_webhook_and_hour,
    day_report,
    settled_events,
)
from spark_jobs.jobs.delivery_report.figures import DayReport
from spark_jobs.jobs.delivery_report.page import write_page
from spark_jobs.jobs.derived_tables import open_source, replace_day
from spark_jobs.jobs.execution import kept, told_plainly
from spark_jobs.jobs.parsing import set_aside, taken
from spark_jobs.tables import read_table

KIND: Final = "delivery-report"


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Where a report reads and writes; `origin` names the data centre whose log was loaded."""

    table: str
    report_table: str
    quarantine_table: str
    page: Path
    origin: str

    def of_day(self, spark: SparkSession, day: date) -> "WrittenReport":
        """Write the report of a day, in place of the one that was there.

        Raises:
            InvalidOption: there is no raw table.
            RunSuperseded: another run wrote to one of the tables meanwhile.
            PipelineError: tasks failed, with their error where it is one of the pipeline's.
        """
        source, head = open_source(self.table)
        position = {"source": {"uri": source.store.uri, "version": head.version}, "day": str(day)}
        common: dict[str, Any] = {"kind": KIND, "position": position}
        records = self._sifted(spark, day, head.version)
        with told_plainly(), kept(*records):
            unread = records.unread(day)
            told: dict[str, Any] = {"day": str(day), "unread": unread.count()}
            replace_day(unread, self.quarantine_table, QUARANTINE, day, report=told, **common)
            events = records.events(self.origin)
            hours = by_webhook_and_hour(events, taken(records.replayed), day)
            with kept(events, hours):
                report = day_report(hours, events, day)
                told |= {"webhooks": report.webhooks, **report.total.as_json()}
                replace_day(hours, self.report_table, DELIVERY_HOURS, day, report=told, **common)
        name = f"{self.table}, version {head.version}"
        page = write_page(report, self.page, source=name, unread=told["unread"])
        return WrittenReport(report, told["unread"], page)

    def _sifted(self, spark: SparkSession, day: date, version: int) -> "_Sifted":
        start_ms, end_ms = bounds_ms(day)

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

        return _Sifted(
            owed(records(DELIVERY_LOG), self.origin),
            # An outcome has the time of its event.
            settled(records(DELIVERY_OUTCOMES), self.origin),
            # A replay tells of itself when it is done, which is after the events.
            replayed(records(REPLAY_OUTCOMES, None)),
        )


class WrittenReport(NamedTuple):
    """The report of a day that stands, and what came with it."""

    report: DayReport
    unread: int
    """Records of the day that could not be read; the quarantine has them."""

    page: Path

    def as_json(self) -> dict[str, Any]:
        """What scripts are told."""
        return {
            "day": self.report.day.isoformat(),
            "webhooks": self.report.webhooks,
            **self.report.total.as_json(),
            "unread": self.unread,
            "page": str(self.page),
        }


class _Sifted(NamedTuple):
    """Records as `sift` makes them."""

    owed: DataFrame
    settled: DataFrame
    replayed: DataFrame

    def events(self, origin: str) -> DataFrame:
        return settled_events(taken(self.owed), taken(self.settled), origin)

    def unread(self, day: date) -> DataFrame:
        """What could not be read of the day; replays of later days are of later reports."""
        owed, settled, replayed = map(set_aside, self)
        return owed.unionAll(settled).unionAll(replayed).where(sql.col("date") == sql.lit(day))
