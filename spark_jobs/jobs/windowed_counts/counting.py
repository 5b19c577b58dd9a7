"""The counting query: counts events by type and window in tasks, and closed windows in Spark.

A task reduces a batch of records to a row for each type and window, and a row for each record that
cannot be counted. The query's rows are of three kinds, all in one micro-batch, so that one position
covers them:

    window   a closed window with its count, exactly once
    seen     events of this micro-batch by window, late ones included
    unread   a record that could not be counted
"""

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.errors import UndecodableRecord
from spark_jobs.jobs.parsing import TIME, UNREAD_REASON, header, parse_batch

if TYPE_CHECKING:
    from pyspark.sql import Column


TYPE_CHARS_MAX: Final = 256
"""The replay service's limit for event types."""

AHEAD_MAX_US: Final = 5 * 60 * 1_000_000
"""How far an event time may be ahead of the clock; publishers have the same limit."""

COUNTED: Final = pa.schema(
    [
        ("timestamp", TIME),
        ("eventType", pa.string()),
        ("events", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("value", pa.binary()),
    ]
)
"""Columns of the rows that tasks return.

In a row of counted events, `timestamp` is the latest of their times, and `reason` is null. In a row
of an uncountable record, `timestamp` is its own time, and `events` is null.
"""

_TYPE: Final = pa.schema([("eventType", pa.string())])
_AHEAD: Final = "event time is more than five minutes ahead of the clock"


def count_types(batch: pa.RecordBatch, window_us: int, now_us: int) -> Iterator[pa.RecordBatch]:
    """Count the records of a batch by type and window; at most two batches with columns `COUNTED`.

    `batch` has topic, partition, offset, timestamp, value and `headerType`, the header
    `event-type`.
    """
    typed = parse_batch(batch, ("value", "headerType"), _TYPE, read_type)
    time_us = batch.column("timestamp").cast(pa.int64())
    is_ahead = pc.greater(time_us, now_us + AHEAD_MAX_US)
    unread_reason = typed.column(UNREAD_REASON)
    reason = pc.if_else(pc.and_(is_ahead, pc.is_null(unread_reason)), _AHEAD, unread_reason)
    is_read = pc.is_null(reason)
    counted = pa.table(
        {
            "eventType": typed.column("eventType"),
            "time": time_us,
            # Floor division, also for times before 1970.
            "window": time_us.to_numpy() // window_us,
        }
    ).filter(is_read)
    if counted.num_rows:
        yield from _counted(counted)
    if counted.num_rows < batch.num_rows:
        unread = batch.append_column("reason", reason).filter(pc.invert(is_read))
        yield _by_contract({name: unread.column(name) for name in unread.schema.names}, unread)


def read_type(value: bytes | None, header_type: bytes | None) -> tuple[str]:
    """The type of an event: its header, or the member `type` of a JSON object.

    Raises:
        UndecodableRecord: it has neither.
    """
    event_type = (header_type or b"").decode("utf-8", "replace") or _member(value)
    if len(event_type) > TYPE_CHARS_MAX:
        raise UndecodableRecord(
            f"type has {len(event_type)} characters; allowed are up to {TYPE_CHARS_MAX}"
        )
    return (event_type,)


def _member(value: bytes | None) -> str:
    try:
        members = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"no header event-type, and value is not JSON: {error}") from error
    found = members.get("type") if isinstance(members, dict) else None
    # JSON allows lone surrogates, which cannot be encoded.
    if not isinstance(found, str) or not found or not found.isprintable():
        raise UndecodableRecord("no header event-type, and no JSON member type")
    return found


def _counted(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    groups = rows.group_by(["eventType", "window"]).aggregate([("time", "max"), ("time", "count")])
    for each in groups.to_batches():
        columns = {
            "timestamp": each.column("time_max").cast(TIME),
            "eventType": each.column("eventType"),
            "events": each.column("time_count"),
        }
        yield _by_contract(columns, each)


def _by_contract(columns: dict[str, Any], like: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(like.num_rows, field.type)
        for field in COUNTED
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=COUNTED)


WINDOW: Final = "window"
SEEN: Final = "seen"
UNREAD: Final = "unread"

COLUMNS: Final = (
    "topic string, partition int, offset long, timestamp timestamp, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns that are read of records of `events`."""


def count_windows(events: DataFrame, *, window_s: int, watermark_s: int) -> DataFrame:
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
    """The start of a time's window, aligned to 1970 as in Spark's `window`."""
    time_us = sql.unix_micros(timestamp)
    return sql.timestamp_micros(time_us - sql.pmod(time_us, sql.lit(window_us)))
