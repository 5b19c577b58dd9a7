"""Aggregates deliveries into unique events, and events into counts by webhook and hour.

An event is an id with a body for a webhook. Further records with both are duplicates, whether they
were published again or mirrored. Outcomes have positions in the log of their origin, so a local
event is matched by its position and a mirrored one by its digest.

Of a position, the last outcome counts. An event with several positions is delivered if one of them
was, at the earliest time; else it has the last outcome. An outcome of an event that waits for a
scheduled retry counts as none, also behind another one: the event is unsettled.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from spark_jobs.jobs.delivery_records import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column


from datetime import date
from typing import TYPE_CHECKING

from spark_jobs.contracts import DELIVERY_HOURS
from spark_jobs.jobs.delivery_report.figures import COUNTS, DayReport, Figures

if TYPE_CHECKING:
    from pyspark.sql import Column


_KEY: Final = ("keyOrigin", "keyFirst", "keySecond")
"""Origin, partition and offset of local events; origin, digest and -1 of mirrored ones."""

_BY_DIGEST: Final = -1


def unique_events(deliveries: DataFrame, outcomes: DataFrame, local_origin: str) -> DataFrame:
    """A row for each event: `webhookId`, `hour`, `outcome` or null, `delayMs`, `duplicates`.

    `deliveries` and `outcomes` are the rows of one day from `delivery_columns`. `delayMs` is null
    unless the event was delivered.
    """
    keyed = deliveries.withColumns(_key("partition", "offset", local_origin))
    joined = keyed.join(_results(outcomes, local_origin), list(_KEY), "left")
    events = joined.groupBy("webhookId", "digest").agg(
        sql.min("timestamp").alias("eventTime"),
        (sql.count("*") - 1).alias("duplicates"),
        sql.max("result").alias("result"),
    )
    delay_ms = sql.unix_millis("result.settledTime") - sql.unix_millis("eventTime")
    return events.select(
        "webhookId",
        sql.hour("eventTime").alias("hour"),
        sql.col("result.outcome").alias("outcome"),
        sql.when(sql.col("result.isDelivered"), delay_ms).alias("delayMs"),
        "duplicates",
    )


def _results(outcomes: DataFrame, local_origin: str) -> DataFrame:
    """The result of each key: the one with the highest order."""
    last = outcomes.groupBy("origin", "owedPartition", "owedOffset").agg(
        sql.max(
            sql.struct(
                # A live process that starts again may write that an event waits after its end.
                (~sql.col("isWaiting")).alias("isLast"),
                *("offset", "outcome", "settledTime", "digest"),
            )
        ).alias("last")
    )
    positions = last.select("origin", "owedPartition", "owedOffset", "last.*")
    # Old outcomes have no digest, so mirrored ones cannot be matched.
    keyed = positions.withColumns(_key("owedPartition", "owedOffset", local_origin)).dropna(
        subset=["keyFirst"]
    )
    return keyed.groupBy(*_KEY).agg(sql.max(_result()).alias("result"))


def _result() -> "Column":
    is_delivered = sql.col("outcome") == Outcome.DELIVERED.value
    offset = sql.col("offset")
    order = sql.when(is_delivered, -offset).otherwise(offset)
    outcome = sql.when(sql.col("isLast"), sql.col("outcome"))
    return sql.struct(
        is_delivered.alias("isDelivered"),
        "isLast",
        order.alias("order"),
        outcome.alias("outcome"),
        "settledTime",
    )


def _key(partition: str, offset: str, local_origin: str) -> dict[str, "Column"]:
    is_here = sql.col("origin") == local_origin
    return {
        "keyOrigin": sql.col("origin"),
        "keyFirst": sql.when(is_here, sql.col(partition).cast("long")).otherwise(sql.col("digest")),
        "keySecond": sql.when(is_here, sql.col(offset)).otherwise(sql.lit(_BY_DIGEST).cast("long")),
    }


WORST_MAX: Final = 20
"""Maximum number of webhooks that the page lists."""

_ACCURACY: Final = 10_000
"""Percentiles are actual values, within 1/10,000 of the exact rank."""


def hourly_rows(events: DataFrame, replays: DataFrame, day: date) -> DataFrame:
    """A row of the table for each webhook and hour of the day with events or replays.

    `events` comes from `unique_events`, and `replays` from `delivery_columns.parse_replays`.
    """
    live = events.groupBy("webhookId", "hour").agg(*_live_counts(), *_delays())
    hours = live.join(_replayed(replays, day), ["webhookId", "hour"], "full")
    whole = hours.fillna(0, list(COUNTS)).withColumn("date", sql.lit(day))
    return whole.select(*DELIVERY_HOURS.names)


def day_report(hours: DataFrame, events: DataFrame, day: date) -> DayReport:
    """The figures of the page: the whole day, each hour, and the webhooks with most failures."""
    sums = [sql.sum(name).alias(name) for name in COUNTS]
    by_hour = {row["hour"]: row for row in hours.groupBy("hour").agg(*sums).collect()}
    hour_delays = {row["hour"]: row for row in events.groupBy("hour").agg(*_delays()).collect()}
    total = hours.agg(*sums, sql.count_distinct("webhookId").alias("webhooks")).collect()[0]
    webhooks = hours.groupBy("webhookId").agg(*sums)
    undelivered = sql.col("owed") - sql.col("delivered")
    worst = webhooks.where(undelivered > 0).orderBy(undelivered.desc(), "webhookId")
    worst_rows = worst.limit(WORST_MAX).collect()
    their_events = events.where(sql.col("webhookId").isin([row["webhookId"] for row in worst_rows]))
    their_delays = their_events.groupBy("webhookId").agg(*_delays()).collect()
    webhook_delays = {row["webhookId"]: row for row in their_delays}
    return DayReport(
        day=day,
        webhooks=total["webhooks"],
        total=Figures.from_rows(total, events.agg(*_delays()).collect()[0]),
        hours={
            hour: Figures.from_rows(by_hour[hour], hour_delays.get(hour))
            for hour in sorted(by_hour)
        },
        worst={
            row["webhookId"]: Figures.from_rows(row, webhook_delays.get(row["webhookId"]))
            for row in worst_rows
        },
    )


def _live_counts() -> list["Column"]:
    outcome = sql.col("outcome")
    return [
        sql.count("*").alias("owed"),
        *(sql.count_if(outcome == each.value).alias(each.value) for each in Outcome),
        sql.count_if(outcome.isNull()).alias("unsettled"),
        sql.sum("duplicates").alias("duplicates"),
    ]


def _delays() -> list["Column"]:
    return [
        sql.percentile_approx("delayMs", share, _ACCURACY).alias(name)
        for name, share in (("delayP50Ms", 0.5), ("delayP95Ms", 0.95))
    ]


def _replayed(replays: DataFrame, day: date) -> DataFrame:
    """What replays did with the events of a day, by webhook and hour."""
    last = replays.groupBy("replayId", "start").agg(
        sql.max_by("hours", sql.struct("epoch", "offset")).alias("hours"),
        sql.max_by("webhookId", sql.struct("epoch", "offset")).alias("webhookId"),
    )
    each = last.select("webhookId", sql.inline("hours"))
    of_day = each.where(sql.col("hour").startswith(f"{day.isoformat()}T"))
    return of_day.groupBy("webhookId", sql.substring("hour", 12, 2).cast("int").alias("hour")).agg(
        sql.sum("delivered").alias("replayed"),
        sql.sum("failed").alias("replayFailed"),
        sql.sum("duplicates").alias("replayDuplicates"),
    )
