"""The audit of a day: from the raw table, a row for each window and producer, and sums of them."""

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
from spark_jobs.jobs.days import bounds_ms
from spark_jobs.jobs.derived_tables import open_source, replace_day
from spark_jobs.jobs.execution import kept
from spark_jobs.jobs.load_position import read_times
from spark_jobs.tables import Snapshot, read_table

KIND: Final = "audit"
COUNTS: Final = ("published", "loaded", "missing", "duplicated", "uncovered")
_RFC_3339: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"

WORST_MAX: Final = 20
"""Windows with losses that are named; the table has all."""


class TopicTotal(NamedTuple):
    """All windows of a topic and a status."""

    topic: str
    status: str
    windows: int
    counts: dict[str, int]


class AuditedDay(NamedTuple):
    """What an audit found, and where the rows of it are."""

    day: date
    totals: list[TopicTotal]
    worst: list[dict[str, Any]]
    """Windows with the most losses."""

    is_whole: bool
    """Whether what producers say was loaded up to the end of the day, and some time beyond: else
    nothing is known of what they say later."""

    @property
    def missing(self) -> int:
        """Messages that were published and not loaded, and should have been by now."""
        return sum(each.counts["missing"] for each in self.totals if each.status == MISSING)

    def as_json(self) -> dict[str, Any]:
        """What scripts are told."""
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
    """Which table is audited, and where the report goes; without topics, all that are loaded."""

    table: str
    report_table: str
    topics: tuple[str, ...]
    lateness_ms: int

    def of_day(self, spark: SparkSession, day: date) -> AuditedDay:
        """Compare the windows that begin on a day, and replace the report of that day.

        Raises:
            InvalidOption: the topic `audit`, or one that was named, is not in the table.
            RunSuperseded: another run wrote to the report meanwhile.
        """
        source, head = open_source(self.table)
        scope = self._scope(head, day)
        rows = self._compared(spark, scope, head.version)
        with kept(rows):
            heard_ms = read_times(head.position)[AUDIT_TOPIC]
            is_whole = heard_ms >= scope.end_ms + scope.lateness_ms
            found = AuditedDay(day, _totals(rows), _worst(rows), is_whole)
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
                report=found.as_json(),
            )
        return found

    def _scope(self, head: Snapshot, day: date) -> AuditScope:
        loaded = read_times(head.position)
        wanted = self.topics or tuple(sorted(loaded.keys() - {AUDIT_TOPIC}))
        for topic in (AUDIT_TOPIC, *wanted):
            if topic not in loaded:
                raise InvalidOption(
                    f"table is {self.table}, which has no topic {topic}; it has "
                    f"{', '.join(sorted(loaded))}: load {topic} into it"
                )
        start_ms, end_ms = bounds_ms(day)
        as_of_ms = {topic: loaded[topic] for topic in wanted}
        return AuditScope(start_ms, end_ms, as_of_ms, self.lateness_ms)

    def _compared(self, spark: SparkSession, scope: AuditScope, version: int) -> DataFrame:
        events = read_table(
            spark,
            self.table,
            RECORDS,
            topics=[AUDIT_TOPIC],
            # They are told after their windows, by producers whose clocks may be slow.
            start_ms=scope.start_ms - scope.lateness_ms,
            version=version,
        )
        records = read_table(
            spark,
            self.table,
            RECORDS,
            topics=list(scope.as_of_ms),
            # Where the broker gives records their times, they are later than their marks, or a
            # bit earlier where its clock is slow.
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
    told = lost.limit(WORST_MAX).select("topic", window, "producer", *COUNTS)
    return [row.asDict() for row in told.collect()]
