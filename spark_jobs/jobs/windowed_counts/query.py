"""The streaming query: counts of windows that the watermark has passed, and what they are made of.

Its rows are of three kinds. A micro-batch has all of them, so that one position covers all:

    window   a window that was closed, with its count: never again
    seen     events of this micro-batch, by window, whether or not they came too late
    unread   a record that could not be counted
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.jobs.sifting import header
from spark_jobs.jobs.windowed_counts.sift import COUNTED, count_types

if TYPE_CHECKING:
    from pyspark.sql import Column

WINDOW: Final = "window"
SEEN: Final = "seen"
UNREAD: Final = "unread"

COLUMNS: Final = (
    "topic string, partition int, offset long, timestamp timestamp, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
"""What is read of a record of `events`."""


def counts(events: DataFrame, *, window_s: int, watermark_s: int) -> DataFrame:
    """The rows of all kinds, with the columns `kind`, `windowStart` and those of `COUNTED`."""
    window_us = window_s * 1_000_000

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from count_types(batch, window_us, time.time_ns() // 1_000)

    named = events.withColumn("headerType", header("event-type")).drop("headers")
    parts = named.mapInArrow(count, from_arrow_schema(COUNTED))
    started = parts.withColumn("windowStart", _window_start("timestamp", window_us))
    kind = sql.when(sql.col("reason").isNull(), SEEN).otherwise(UNREAD)
    return _closed(parts, window_s, watermark_s).unionByName(
        started.withColumn("kind", kind), allowMissingColumns=True
    )


def _closed(parts: DataFrame, window_s: int, watermark_s: int) -> DataFrame:
    counted = parts.where(sql.col("reason").isNull())
    watched = counted.withWatermark("timestamp", f"{watermark_s} seconds")
    windows = watched.groupBy(sql.window("timestamp", f"{window_s} seconds"), "eventType")
    return windows.agg(sql.sum("events").alias("events")).select(
        sql.lit(WINDOW).alias("kind"),
        sql.col("window.start").alias("windowStart"),
        "eventType",
        "events",
    )


def _window_start(timestamp: str, window_us: int) -> "Column":
    """As `window` has it: windows follow each other from 1970 on, and before."""
    time_us = sql.unix_micros(timestamp)
    return sql.timestamp_micros(time_us - sql.pmod(time_us, sql.lit(window_us)))
