"""The tables that the pipeline keeps: their columns, each with what it holds.

Times are UTC. A table's columns are only ever added to, and new ones may be null, so that files of
before are read as they are.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
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
"""As Spark's Kafka connector has them with `includeHeaders`."""


def column(name: str, kind: DataType, description: str, *, nullable: bool = True) -> StructField:
    """A column with its description, which Spark carries along as its comment."""
    return StructField(name, kind, nullable, {"comment": description})


RECORDS: Final = StructType(
    [
        column("topic", StringType(), "The record's topic"),
        column("partition", IntegerType(), "Its partition"),
        column("offset", LongType(), "Its offset in the partition"),
        column("timestamp", TimestampType(), "Its time, by its producer or by the broker's append"),
        column("timestampType", IntegerType(), "0: the producer's time; 1: the broker's"),
        column("key", BinaryType(), "Its key, byte for byte"),
        column("value", BinaryType(), "Its value, byte for byte"),
        column("headers", HEADERS, "Its headers, in their order; null when it has none"),
        column("schemaId", IntegerType(), "Id of its Avro schema; null where it is not framed so"),
        column("date", DateType(), "The day of `timestamp`"),
        column("hour", IntegerType(), "The hour of `timestamp`, 0 to 23"),
    ]
)
"""The raw layer, as `load` writes it: every record of a topic once."""

DECODED: Final = StructType(
    [
        column("topic", StringType(), "The record's topic"),
        column("partition", IntegerType(), "Its partition"),
        column("offset", LongType(), "Its offset in the partition"),
        column("timestamp", TimestampType(), "Its time"),
        column("key", BinaryType(), "Its key, byte for byte"),
        column("schemaId", IntegerType(), "Id of its Avro schema; null where it was JSON before"),
        column("json", StringType(), "Its value as a JSON object; null where it has none"),
        column("date", DateType(), "The day of `timestamp`"),
    ]
)
"""What `decode` makes of raw records, by their schemas."""

AUDIT: Final = StructType(
    [
        column("topic", StringType(), "The topic of the messages"),
        column("window", TimestampType(), "Where their window of time begins"),
        column("windowEnd", TimestampType(), "Where it ends; null where the producer has not told"),
        column("producer", StringType(), "Who published them: a server and a run of it"),
        column("published", LongType(), "How many the log acknowledged, as the producer tells"),
        column("loaded", LongType(), "How many different ones of them, or others, were loaded"),
        column("missing", LongType(), "Published, and not loaded"),
        column("duplicated", LongType(), "Records that were loaded beside the first of a message"),
        column("uncovered", LongType(), "Loaded, and not told of by the producer: no loss"),
        column("status", StringType(), "complete, missing, pending or uncovered"),
        column("date", DateType(), "The day of `window`"),
    ]
)
"""What `audit` finds: a row for each topic, window and producer."""

QUARANTINE: Final = StructType(
    [
        column("topic", StringType(), "The topic of a record that could not be read"),
        column("partition", IntegerType(), "Its partition"),
        column("offset", LongType(), "Its offset in the partition"),
        column("timestamp", TimestampType(), "Its time"),
        column("reason", StringType(), "Why it could not be read"),
        column("value", BinaryType(), "Its value, byte for byte"),
        column("date", DateType(), "The day of `timestamp`"),
    ]
)
"""What a job could not read, beside the table of what it could."""

WINDOWED_COUNTS: Final = StructType(
    [
        column("windowStart", TimestampType(), "Where the window of event time begins"),
        column("windowEnd", TimestampType(), "Where it ends; this moment is of the next one"),
        column("eventType", StringType(), "The type of the events"),
        column("events", LongType(), "How many of this type came before the window was closed"),
        column("date", DateType(), "The day of `windowStart`"),
    ]
)
"""Events per type and window, each counted once, when the watermark has passed the window."""

DELIVERY_JOIN: Final = StructType(
    [
        column("webhookId", StringType(), "Whom the event was owed to"),
        column("origin", StringType(), "The data centre where it was made"),
        column("partition", IntegerType(), "Its partition in the `delivery_log` of `origin`"),
        column("offset", LongType(), "Its offset there"),
        column("eventId", StringType(), "The event's id"),
        column("eventType", StringType(), "Its type"),
        column("eventTime", TimestampType(), "Its own time"),
        column("outcome", StringType(), "What became of it; null: not settled in time"),
        column("attempts", IntegerType(), "How often it was sent; null as `outcome`"),
        column("status", IntegerType(), "The last HTTP answer; null where there was none"),
        column("settledTime", TimestampType(), "When it was settled; null as `outcome`"),
        column("delayMs", LongType(), "`settledTime` minus `eventTime`; null as `outcome`"),
        column("date", DateType(), "The day of `eventTime`"),
    ]
)
"""Each owed event that came in time with what became of it live, by its first outcome."""

DELIVERY_HOURS: Final = StructType(
    [
        column("date", DateType(), "The day of the events"),
        column("hour", IntegerType(), "The hour of their own time, 0 to 23 UTC"),
        column("webhookId", StringType(), "Whom they were owed to"),
        column("owed", LongType(), "Different events: an id with a body counts once"),
        column("delivered", LongType(), "Of these, delivered live"),
        column("failed", LongType(), "Of these, given up by the live path after its attempts"),
        column("left", LongType(), "Of these, left to replays"),
        column("disabled", LongType(), "Of these, not sent: the webhook was not enabled"),
        column("unsettled", LongType(), "Of these, without an outcome so far"),
        column("duplicates", LongType(), "Records of the log beside the first of an event"),
        column("replayed", LongType(), "Delivered by replays, as often as they did"),
        column("replayFailed", LongType(), "Given up by replays"),
        column("replayDuplicates", LongType(), "Copies that replays passed over"),
        column("delayP50Ms", LongType(), "Median of settled minus event time of the delivered"),
        column("delayP95Ms", LongType(), "Its 95th percentile"),
    ]
)
"""What `delivery-report` finds: a row for each webhook and hour; a day is replaced as a whole."""
