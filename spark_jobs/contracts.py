"""The tables of the pipeline: their columns, each with a description.

Times are UTC. Columns are only ever added, and new ones are nullable, so older files stay readable.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
"""The type of Spark's Kafka connector with `includeHeaders`."""


def column(name: str, kind: DataType, description: str, *, nullable: bool = True) -> StructField:
    """A column with its description, which Spark stores as its comment."""
    return StructField(name, kind, nullable, {"comment": description})


RECORDS: Final = StructType(
    [
        column("topic", StringType(), "The record's topic"),
        column("partition", IntegerType(), "Its partition"),
        column("offset", LongType(), "Its offset in the partition"),
        column("timestamp", TimestampType(), "Its time, set by the producer or the broker"),
        column("timestampType", IntegerType(), "0: set by the producer; 1: by the broker"),
        column("key", BinaryType(), "Its key, byte for byte"),
        column("value", BinaryType(), "Its value, byte for byte"),
        column("headers", HEADERS, "Its headers, in order; null if it has none"),
        column("schemaId", IntegerType(), "Id of its Avro schema; null for other values"),
        column("date", DateType(), "The day of `timestamp`"),
        column("hour", IntegerType(), "The hour of `timestamp`, 0 to 23"),
    ]
)
"""The raw table, written by `load`: every record of a topic once."""

DECODED: Final = StructType(
    [
        column("topic", StringType(), "The record's topic"),
        column("partition", IntegerType(), "Its partition"),
        column("offset", LongType(), "Its offset in the partition"),
        column("timestamp", TimestampType(), "Its time"),
        column("key", BinaryType(), "Its key, byte for byte"),
        column("schemaId", IntegerType(), "Id of its Avro schema; null if it was JSON"),
        column("json", StringType(), "Its value as a JSON object; null if it has none"),
        column("accountId", StringType(), "The account that it was published for; null if none"),
        column("date", DateType(), "The day of `timestamp`"),
    ]
)
"""The result of `decode`: raw records with their values as JSON."""

AUDIT: Final = StructType(
    [
        column("topic", StringType(), "The topic of the messages"),
        column("window", TimestampType(), "Start of the audit window"),
        column("windowEnd", TimestampType(), "End of the window; null if not reported"),
        column("producer", StringType(), "Their producer: a server and one of its runs"),
        column("published", LongType(), "Messages that the producer reported as acknowledged"),
        column("loaded", LongType(), "Distinct loaded messages, reported or not"),
        column("missing", LongType(), "Published but not loaded"),
        column("duplicated", LongType(), "Further loaded records of the same message"),
        column("uncovered", LongType(), "Loaded but not reported by the producer: no loss"),
        column("status", StringType(), "complete, missing, pending or uncovered"),
        column("date", DateType(), "The day of `window`"),
    ]
)
"""The result of `audit`: a row for each topic, window and producer."""

QUARANTINE: Final = StructType(
    [
        column("topic", StringType(), "The topic of the unreadable record"),
        column("partition", IntegerType(), "Its partition"),
        column("offset", LongType(), "Its offset in the partition"),
        column("timestamp", TimestampType(), "Its time"),
        column("reason", StringType(), "Why it could not be read"),
        column("value", BinaryType(), "Its value, byte for byte"),
        column("date", DateType(), "The day of `timestamp`"),
    ]
)
"""Records that a job could not read."""

WINDOWED_COUNTS: Final = StructType(
    [
        column("windowStart", TimestampType(), "Start of the window of event time"),
        column("windowEnd", TimestampType(), "End of the window, exclusive"),
        column("eventType", StringType(), "The type of the events"),
        column("events", LongType(), "Events of this type before the window was closed"),
        column("date", DateType(), "The day of `windowStart`"),
    ]
)
"""Events per type and window, written once when the watermark has passed the window."""

DELIVERY_JOIN: Final = StructType(
    [
        column("webhookId", StringType(), "The webhook of the delivery"),
        column("origin", StringType(), "The data centre where it was published"),
        column("partition", IntegerType(), "Its partition in the `delivery_log` of `origin`"),
        column("offset", LongType(), "Its offset there"),
        column("eventId", StringType(), "The event's id"),
        column("eventType", StringType(), "Its type"),
        column("eventTime", TimestampType(), "Its event time"),
        column("outcome", StringType(), "Its outcome; null: none in time"),
        column("attempts", IntegerType(), "Number of attempts; null as `outcome`"),
        column("status", IntegerType(), "The last HTTP status; null without a response"),
        column("settledTime", TimestampType(), "Time of the outcome; null as `outcome`"),
        column("delayMs", LongType(), "`settledTime` minus `eventTime`; null as `outcome`"),
        column("date", DateType(), "The day of `eventTime`"),
        column("deliveryStatus", StringType(), "succeeded, failed or skipped; null as `outcome`"),
        column("reason", StringType(), "Why it failed or was skipped; null if it succeeded"),
        column("durationMs", DoubleType(), "Duration of the last attempt; null without one"),
        column("server", StringType(), "The process that recorded the outcome; null as `outcome`"),
        column("accountId", StringType(), "The account it was published for; null if none"),
    ]
)
"""Each delivery that arrived before the watermark, with its first live outcome."""

DELIVERY_HOURS: Final = StructType(
    [
        column("date", DateType(), "The day of the events"),
        column("hour", IntegerType(), "The hour of event time, 0 to 23 UTC"),
        column("webhookId", StringType(), "Their webhook"),
        column("owed", LongType(), "Unique events: an id with a body counts once"),
        column("delivered", LongType(), "Of these, delivered live"),
        column("failed", LongType(), "Of these, failed after all live attempts"),
        column("left", LongType(), "Of these, skipped by the live path"),
        column("disabled", LongType(), "Of these, not sent: webhook not enabled"),
        column("unsettled", LongType(), "Of these, without an outcome yet"),
        column("duplicates", LongType(), "Further records of the same event"),
        column("replayed", LongType(), "Deliveries by replays, repeated ones included"),
        column("replayFailed", LongType(), "Failed in replays"),
        column("replayDuplicates", LongType(), "Duplicates that replays skipped"),
        column("delayP50Ms", LongType(), "p50 of the delay of delivered events"),
        column("delayP95Ms", LongType(), "p95 of the delay"),
    ]
)
"""The result of `delivery-report`: a row for each webhook and hour; days are replaced."""
