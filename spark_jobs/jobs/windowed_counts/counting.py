"""The streaming query: counts of windows that the watermark has passed, and what they are made of.

Its rows are of three kinds. A micro-batch has all of them, so that one position covers all:

    window   a window that was closed, with its count: never again
    seen     events of this micro-batch, by window, whether or not they came too late
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
from spark_jobs.jobs.parsing import TIME, header, sifted

if TYPE_CHECKING:
    from pyspark.sql import Column


TYPE_CHARS_MAX: Final = 256
"""What the replay service takes for an event's type."""

AHEAD_MAX_US: Final = 5 * 60 * 1_000_000
"""How far ahead of the clock an event's time may be, as where events are published."""

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
"""`timestamp` is the latest one of the events counted in a row, and the time of a record that was
not; `events` is null there, and `reason` null of the others."""

_TYPE: Final = pa.schema([("eventType", pa.string())])
_AHEAD: Final = "its time is more than five minutes ahead: it would close all windows up to then"


def count_types(batch: pa.RecordBatch, window_us: int, now_us: int) -> Iterator[pa.RecordBatch]:
    """Count the records of a batch by type and window; at most two batches by `COUNTED`.

    It has the columns of a record's place, `value`, and `headerType`: the header `event-type`.
    """
    typed = sifted(batch, ("value", "headerType"), _TYPE, read_type)
    time_us = batch.column("timestamp").cast(pa.int64())
    is_ahead = pc.greater(time_us, now_us + AHEAD_MAX_US)
    reason = pc.if_else(
        pc.and_(is_ahead, pc.is_null(typed.column("reason"))), _AHEAD, typed.column("reason")
    )
    is_read = pc.is_null(reason)
    counted = pa.table(
        {
            "eventType": typed.column("eventType"),
            "time": time_us,
            # Rounded down, also before 1970: all windows begin before their events.
            "window": time_us.to_numpy() // window_us,
        }
    ).filter(is_read)
    if counted.num_rows:
        yield from _counted(counted)
    if counted.num_rows < batch.num_rows:
        unread = batch.append_column("reason", reason).filter(pc.invert(is_read))
        yield _by_contract({name: unread.column(name) for name in unread.schema.names}, unread)


def read_type(value: bytes | None, header_type: bytes | None) -> tuple[str]:
    """The type of an event: its header's, or the member `type` of a JSON object.

    Raises:
        UndecodableRecord: it has none.
    """
    event_type = (header_type or b"").decode("utf-8", "replace") or _member(value)
    if len(event_type) > TYPE_CHARS_MAX:
        raise UndecodableRecord(
            f"its type has {len(event_type)} characters, and at most {TYPE_CHARS_MAX} are allowed"
        )
    return (event_type,)


def _member(value: bytes | None) -> str:
    try:
        members = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"no header event-type, and no JSON: {error}") from error
    found = members.get("type") if isinstance(members, dict) else None
    # Half a surrogate pair is a text in JSON, and none that could be written anywhere.
    if not isinstance(found, str) or not found or not found.isprintable():
        raise UndecodableRecord("no header event-type, and no JSON object with a text as its type")
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
