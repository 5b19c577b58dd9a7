"""Compares published with loaded messages as sets of sequence numbers, in Spark.

For each topic, window and producer, P are the sequences in the reports of the topic `audit`, and L
those in the marks of the loaded records:

    missing = P - L      uncovered = L - P      duplicated = records loaded - |L|

Sets are bitmaps in blocks, united and counted in tasks: the driver gets a row for each window and
producer.

A mirror may copy the audit reports of another data centre's producers and only some of their
topics. Their reports on a topic count if any record of that data centre was loaded from it.

Source: the 2011 paper, section 5: consumers validate what they received against the monitoring
events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from logbroker.client.audit_format.mark import AUDIT_HEADER, PRODUCER_BYTES_MAX
from logbroker.client.audit_format.report import PublishedReport, decode
from logbroker.client.audit_format.sequence_set import PAGE_SEQUENCES
from spark_jobs.contracts import AUDIT

if TYPE_CHECKING:
    from pyspark.sql import Column

COMPLETE: Final = "complete"
MISSING: Final = "missing"
PENDING: Final = "pending"
UNCOVERED: Final = "uncovered"

_BLOCK_SEQUENCES: Final = 32_768
"""The bits per block of Spark's bitmap functions."""

_MARK: Final = rf"(?s)^(.{{1,{PRODUCER_BYTES_MAX}}}):(\d{{1,15}}):(\d{{1,8}})$"

_WINDOW: Final = ("topic", "producer", "windowMs")
_BLOCK: Final = (*_WINDOW, "block")

_ORIGIN_HEADERS: Final = ("origin", "mirrored-from")
"""Headers that a mirror adds to copied records."""

_LOCAL: Final = ""
"""The origin of records that are not mirrored."""

_PUBLISHED: Final = (
    "origin string, reportedMs long, topic string, producer string, windowMs long,"
    " windowEndMs long, block long, bits binary"
)
_PUBLISHED_ARROW: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("reportedMs", pa.int64()),
        ("topic", pa.string()),
        ("producer", pa.string()),
        ("windowMs", pa.int64()),
        ("windowEndMs", pa.int64()),
        ("block", pa.int64()),
        ("bits", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Windows that begin in [start_ms, end_ms) are compared.

    `as_of_ms` is the time up to which each topic was loaded. Messages that a producer reported less
    than `lateness_ms` before it are pending, not missing: the next load may have them.
    """

    start_ms: int
    end_ms: int
    as_of_ms: dict[str, int]
    lateness_ms: int


def compare(records: DataFrame, events: DataFrame, scope: AuditScope) -> DataFrame:
    """A row of `contracts.AUDIT` for each topic, window and producer of the topics of `scope`.

    `records` are the loaded records of those topics and `events` those of `audit`, both as
    `contracts.RECORDS`.
    """
    topics = list(scope.as_of_ms)
    published = _published(events).where(sql.col("topic").isin(topics))
    loaded = _loaded(records.where(sql.col("topic").isin(topics)))
    blocks = published.unionByName(loaded).where(
        sql.col("windowMs").between(scope.start_ms, scope.end_ms - 1)
    )
    return _with_status(_expected(_windows(blocks)), scope)


def _published(events: DataFrame) -> DataFrame:
    """A row for each block of an audit report."""
    origins = sql.filter("headers", lambda each: each["key"].isin(*_ORIGIN_HEADERS))
    origin = sql.try_element_at(origins, sql.lit(1))["value"].cast("string")
    values = events.select(
        "value",
        sql.coalesce(origin, sql.lit(_LOCAL)).alias("origin"),
        sql.unix_millis("timestamp").alias("reportedMs"),
    )
    return values.mapInArrow(_read_reports, _PUBLISHED).withColumns(
        {"records": sql.lit(0), "isLoaded": sql.lit(False)}
    )


def _read_reports(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        for row in batch.to_pylist():
            event = decode(row["value"])
            if isinstance(event, PublishedReport):
                yield _block_rows(event, row["origin"], row["reportedMs"])


def _block_rows(event: PublishedReport, origin: str, reported_ms: int) -> "pa.RecordBatch":
    common = {
        "origin": origin,
        "reportedMs": reported_ms,
        "topic": event.topic,
        "producer": event.producer,
        "windowMs": event.window_ms,
        "windowEndMs": event.window_end_ms,
    }
    blocks = event.sequences.blocks(_BLOCK_SEQUENCES // PAGE_SEQUENCES)
    rows = [{**common, "block": block, "bits": bits} for block, bits in blocks]
    return pa.RecordBatch.from_pylist(rows, _PUBLISHED_ARROW)


def _loaded(records: DataFrame) -> DataFrame:
    """A row for each block with marked records; records without a mark are ignored."""
    header = sql.try_element_at(
        sql.filter("headers", lambda each: each["key"] == AUDIT_HEADER), sql.lit(1)
    )
    text = header["value"].cast("string")
    parts = [sql.regexp_extract(text, _MARK, group) for group in (1, 2, 3)]
    # Spark counts the bits of its bitmaps from 1.
    position = parts[2].cast("long") + 1
    marks = records.where(text.rlike(_MARK)).select(
        "topic",
        parts[0].alias("producer"),
        parts[1].cast("long").alias("windowMs"),
        (sql.bitmap_bucket_number(position) - 1).alias("block"),
        sql.bitmap_bit_position(position).alias("bit"),
    )
    return (
        marks.groupBy(*_BLOCK)
        .agg(sql.bitmap_construct_agg("bit").alias("bits"), sql.count("*").alias("records"))
        .withColumns(
            {
                "windowEndMs": sql.lit(None).cast("long"),
                "reportedMs": sql.lit(None).cast("long"),
                "origin": sql.lit(None).cast("string"),
                "isLoaded": sql.lit(True),
            }
        )
    )


def _windows(blocks: DataFrame) -> DataFrame:
    """The sizes of P, L and their union, and the latest times, for each window."""
    counted = blocks.groupBy(*_BLOCK).agg(
        _size_of(~sql.col("isLoaded")).alias("published"),
        _size_of(sql.col("isLoaded")).alias("loaded"),
        sql.bitmap_count(sql.bitmap_or_agg("bits")).alias("either"),
        sql.sum("records").alias("records"),
        sql.max("windowEndMs").alias("windowEndMs"),
        sql.max("reportedMs").alias("reportedMs"),
        sql.min("origin").alias("origin"),
    )
    sums = [sql.sum(name).alias(name) for name in ("published", "loaded", "either", "records")]
    newest = [sql.max(name).alias(name) for name in ("windowEndMs", "reportedMs")]
    origin = sql.min("origin").alias("origin")
    return counted.groupBy(*_WINDOW).agg(*sums, *newest, origin)


def _expected(windows: DataFrame) -> DataFrame:
    """The windows, except those of other data centres from which nothing was loaded."""
    of_producer, of_origin = Window.partitionBy("producer"), Window.partitionBy("topic", "origin")
    origins = windows.withColumn("origin", sql.min("origin").over(of_producer))
    shares = origins.withColumn("share", sql.sum("loaded").over(of_origin))
    is_here = (sql.col("origin") == _LOCAL) | sql.col("origin").isNull()
    return shares.where(is_here | (sql.col("share") > 0))


def _size_of(side: "Column") -> "Column":
    united = sql.bitmap_or_agg(sql.when(side, sql.col("bits")))
    return sql.coalesce(sql.bitmap_count(united), sql.lit(0))


def _with_status(windows: DataFrame, scope: AuditScope) -> DataFrame:
    as_of = sql.create_map(*(sql.lit(each) for item in scope.as_of_ms.items() for each in item))
    due_ms = as_of[sql.col("topic")] - scope.lateness_ms
    missing = sql.col("either") - sql.col("loaded")
    uncovered = sql.col("either") - sql.col("published")
    # A producer reports a window some time after its end.
    end_ms = sql.coalesce("windowEndMs", "windowMs")
    status = (
        sql.when((missing > 0) & (sql.col("reportedMs") >= due_ms), PENDING)
        .when(missing > 0, MISSING)
        .when((uncovered > 0) & (end_ms >= due_ms - scope.lateness_ms), PENDING)
        .when(uncovered > 0, UNCOVERED)
        .otherwise(COMPLETE)
    )
    start = sql.timestamp_millis("windowMs")
    return windows.select(
        "topic",
        start.alias("window"),
        sql.timestamp_millis("windowEndMs").alias("windowEnd"),
        "producer",
        "published",
        "loaded",
        missing.alias("missing"),
        (sql.col("records") - sql.col("loaded")).alias("duplicated"),
        uncovered.alias("uncovered"),
        status.alias("status"),
        sql.to_date(start).alias("date"),
    ).to(AUDIT)
