"""Each event that was owed, once, with what became of it live.

An event is an id with a body, owed to a webhook: records that repeat it are duplicates, whether
they were published again or brought again by a mirror. What was made here is known by its place
in the log; what a mirror brought, by its digest: outcomes name places in the log of their origin.

Of a place, the last outcome counts. Of an event with several, it is delivered if any of them was,
and then since the first time; else it is as the last outcome says.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from spark_jobs.jobs.delivery_records import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column

_KEY: Final = ("keyOrigin", "keyFirst", "keySecond")
"""Origin, partition and offset of what was made here; origin, digest and -1 of all else."""

_BY_DIGEST: Final = -1


def settled_events(owed: DataFrame, settled: DataFrame, here: str) -> DataFrame:
    """A row for each event: `webhookId`, `hour`, `outcome` or null, `delayMs`, `duplicates`.

    `owed` and `settled` are as `delivery_columns` makes them, of one day; `delayMs` is null of
    what was not delivered.
    """
    keyed = owed.withColumns(_key("partition", "offset", here))
    told = keyed.join(_outcomes(settled, here), list(_KEY), "left")
    events = told.groupBy("webhookId", "digest").agg(
        sql.min("timestamp").alias("eventTime"),
        (sql.count("*") - 1).alias("duplicates"),
        sql.max("told").alias("told"),
    )
    delay_ms = sql.unix_millis("told.settledTime") - sql.unix_millis("eventTime")
    return events.select(
        "webhookId",
        sql.hour("eventTime").alias("hour"),
        sql.col("told.outcome").alias("outcome"),
        sql.when(sql.col("told.isDelivered"), delay_ms).alias("delayMs"),
        "duplicates",
    )


def _outcomes(settled: DataFrame, here: str) -> DataFrame:
    """What is `told` by each key: the greatest says what became of it."""
    last = settled.groupBy("origin", "owedPartition", "owedOffset").agg(
        sql.max(sql.struct("offset", "outcome", "settledTime", "digest")).alias("last")
    )
    places = last.select("origin", "owedPartition", "owedOffset", "last.*")
    # A digest is missing in outcomes of old: such of another data centre cannot be known.
    keyed = places.withColumns(_key("owedPartition", "owedOffset", here)).dropna(
        subset=["keyFirst"]
    )
    return keyed.groupBy(*_KEY).agg(sql.max(_told()).alias("told"))


def _told() -> "Column":
    is_delivered = sql.col("outcome") == Outcome.DELIVERED.value
    offset = sql.col("offset")
    order = sql.when(is_delivered, -offset).otherwise(offset)
    return sql.struct(
        is_delivered.alias("isDelivered"), order.alias("order"), "outcome", "settledTime"
    )


def _key(partition: str, offset: str, here: str) -> dict[str, "Column"]:
    is_here = sql.col("origin") == here
    return {
        "keyOrigin": sql.col("origin"),
        "keyFirst": sql.when(is_here, sql.col(partition).cast("long")).otherwise(sql.col("digest")),
        "keySecond": sql.when(is_here, sql.col(offset)).otherwise(sql.lit(_BY_DIGEST).cast("long")),
    }
