"""Parses records one by one in tasks, and puts unreadable ones in quarantine with the reason."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.contracts import QUARANTINE
from spark_jobs.errors import UndecodableRecord

if TYPE_CHECKING:
    from pyspark.sql import Column

TIME: Final = pa.timestamp("us", tz="UTC")

_PLACE: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
    ]
)
UNREAD_REASON: Final = "unreadReason"
"""Why a record is unreadable: `reason` in the quarantine, a name that parsed fields may have."""

_QUARANTINED: Final = pa.schema([(UNREAD_REASON, pa.string()), ("value", pa.binary())])


def header(name: str) -> "Column":
    """The value of a record's header; of repeated headers, the last one."""
    named = sql.filter("headers", lambda each: each["key"] == name)
    return sql.try_element_at(named, sql.lit(-1))["value"]


def parse_records(
    records: DataFrame,
    sources: Sequence[str],
    fields: pa.Schema,
    read: Callable[..., tuple[Any, ...]],
) -> DataFrame:
    """Parse each record: `read` returns one value per field from the columns `sources`.

    `records` has topic, partition, offset, timestamp and value. The result adds `fields` and
    `UNREAD_REASON`. For an unreadable record, it is set and the fields are null; for others
    `value` is null.
    """
    schema = pa.unify_schemas([_PLACE, fields, _QUARANTINED])

    def parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (parse_batch(batch, sources, fields, read) for batch in batches)

    columns = dict.fromkeys([*_PLACE.names, "value", *sources])
    return records.select(*columns).mapInArrow(parse_batches, from_arrow_schema(schema))


def parsed_rows(parse_batch: DataFrame) -> DataFrame:
    """The records that could be parsed."""
    return parse_batch.where(sql.col(UNREAD_REASON).isNull()).drop(*_QUARANTINED.names)


def quarantine_rows(parse_batch: DataFrame) -> DataFrame:
    """The unreadable records, with the columns of the quarantine."""
    unread = parse_batch.where(sql.col(UNREAD_REASON).isNotNull())
    named = unread.withColumns({"reason": sql.col(UNREAD_REASON), "date": sql.to_date("timestamp")})
    return named.select(*QUARANTINE.names)


def parse_batch(
    batch: pa.RecordBatch,
    sources: Sequence[str],
    fields: pa.Schema,
    read: Callable[..., tuple[Any, ...]],
) -> pa.RecordBatch:
    """One batch of the result of `parse_records`."""
    rows: list[tuple[Any, ...]] = []
    reasons: list[str | None] = []
    nothing = (None,) * len(fields)
    for values in zip(*(batch.column(name).to_pylist() for name in sources), strict=True):
        try:
            rows.append(read(*values))
            reasons.append(None)
        except UndecodableRecord as error:
            rows.append(nothing)
            reasons.append(error.reason)
    reason = pa.array(reasons, pa.string())
    value = pc.if_else(pc.is_valid(reason), batch.column("value"), pa.scalar(None, pa.binary()))
    read_columns = [
        pa.array([row[index] for row in rows], field.type) for index, field in enumerate(fields)
    ]
    arrays = [*(batch.column(name) for name in _PLACE.names), *read_columns, reason, value]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.unify_schemas([_PLACE, fields, _QUARANTINED])
    )
