"""The audit of a day: compares the raw table with audit reports, and stores the result."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.audit_format.report import WINDOW_MS_MAX
from spark_jobs.contracts import AUDIT, RECORDS
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.audit_comparison import MISSING, AuditScope, compare
from spark_jobs.jobs.derived_tables import day_bounds_ms, open_source, replace_day
from spark_jobs.jobs.execution import cached
from spark_jobs.jobs.load_position import read_times
from spark_jobs.tables import Snapshot, read_table

KIND: Final = "audit"
COUNTS: Final = ("published", "loaded", "missing", "duplicated", "uncovered")
_RFC_3339: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"

WORST_MAX: Final = 20
"""Maximum number of windows with losses in the report; the table has all."""


class TopicTotal(NamedTuple):
    """The sums over all windows of a topic and a status."""

    topic: str
    status: str
    windows: int
    counts: dict[str, int]


class AuditedDay(NamedTuple):
    """The result of an audit."""

    day: date
    totals: list[TopicTotal]
    worst: list[dict[str, Any]]
    """The windows with the most missing messages."""

    is_whole: bool
    """Whether the topic `audit` was loaded past the end of the day plus the lateness.

    Otherwise producers may report further messages of the day.
    """

    @property
    def missing(self) -> int:
        """The number of published messages that should have been loaded and are not."""
        return sum(each.counts["missing"] for each in self.totals if each.status == MISSING)

    def as_json(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "day": self.day.isoformat(),
            "missing": self.missing,
            "totals": [
                {"topic": each.topic, "status": each.status, "windows": each.windows, **each.counts}
                for each in self.totals
            ],
            "worst": self.worst,
            "isWhole": self.is_whole,
        }


@dataclass(frozen=True, slots=True)
class LoadAudit:
    """An audit of some topics of a table; without topics, of all that are loaded."""

    table: str
    report_table: str
    topics: tuple[str, ...]
    lateness_ms: int

    def audit_day(self, spark: SparkSession, day: date) -> AuditedDay:
        """Compare the windows that begin on a day, and replace the report of that day.

        Raises:
            InvalidOption: the topic `audit`, or a named one, is not in the table.
            RunSuperseded: another run has written the report at the same time.
        """
        source, head = open_source(self.table)
        scope = self._scope(head, day)
        rows = self._compared(spark, scope, head.version)
        with cached(rows):
            reported_until_ms = read_times(head.position)[AUDIT_TOPIC]
            is_whole = reported_until_ms >= scope.end_ms + scope.lateness_ms
            result = AuditedDay(day, _totals(rows), _worst(rows), is_whole)
            replace_day(
                rows,
                self.report_table,
                AUDIT,
                day,
                kind=KIND,
                position={
                    "source": {"uri": source.store.uri, "version": head.version},
                    "day": day.isoformat(),
                },
                report=result.as_json(),
            )
        return result

    def _scope(self, head: Snapshot, day: date) -> AuditScope:
        loaded = read_times(head.position)
        wanted = self.topics or tuple(sorted(loaded.keys() - {AUDIT_TOPIC}))
        for topic in (AUDIT_TOPIC, *wanted):
            if topic not in loaded:
                raise InvalidOption(
                    f"table {self.table} has no topic {topic}; allowed are "
                    f"{', '.join(sorted(loaded))}: load {topic} into it"
                )
        start_ms, end_ms = day_bounds_ms(day)
        as_of_ms = {topic: loaded[topic] for topic in wanted}
        return AuditScope(start_ms, end_ms, as_of_ms, self.lateness_ms)

    def _compared(self, spark: SparkSession, scope: AuditScope, version: int) -> DataFrame:
        events = read_table(
            spark,
            self.table,
            RECORDS,
            topics=[AUDIT_TOPIC],
            # Reported after their windows, by producers whose clocks may be slow.
            start_ms=scope.start_ms - scope.lateness_ms,
            version=version,
        )
        records = read_table(
            spark,
            self.table,
            RECORDS,
            topics=list(scope.as_of_ms),
            # With append times, records are later than their marks, or slightly earlier if the
            # broker's clock is slow.
            start_ms=scope.start_ms - scope.lateness_ms,
            end_ms=scope.end_ms + WINDOW_MS_MAX,
            version=version,
        )
        return compare(records, events, scope)


def _totals(rows: DataFrame) -> list[TopicTotal]:
    sums = [sql.sum(name).alias(name) for name in COUNTS]
    found = rows.groupBy("topic", "status").agg(sql.count("*").alias("windows"), *sums)
    return [
        TopicTotal(row.topic, row.status, row.windows, {name: row[name] for name in COUNTS})
        for row in found.orderBy("topic", "status").collect()
    ]


def _worst(rows: DataFrame) -> list[dict[str, Any]]:
    lost = rows.where(sql.col("status") == MISSING).orderBy(sql.desc("missing"), "window")
    window = sql.date_format("window", _RFC_3339).alias("window")
    worst = lost.limit(WORST_MAX).select("topic", window, "producer", *COUNTS)
    return [row.asDict() for row in worst.collect()]
