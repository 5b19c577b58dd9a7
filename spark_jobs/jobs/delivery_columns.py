"""What is owed and what became of it, as columns: records of the log, each read in a task."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.jobs.delivery_records import (
    lasting_digest,
    place_name,
    replayed_stretch,
    settled_delivery,
    webhook_of,
)
from spark_jobs.jobs.parsing import TIME, header, sift

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_OWED: Final = pa.schema(
    [
        ("webhookId", pa.string()),
        ("origin", pa.string()),
        ("eventId", pa.string()),
        ("eventType", pa.string()),
        ("digest", pa.int64()),
    ]
)
_SETTLED: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("owedPartition", pa.int32()),
        ("owedOffset", pa.int64()),
        ("digest", pa.int64()),
        ("outcome", pa.string()),
        ("attempts", pa.int32()),
        ("status", pa.int32()),
        ("settledTime", TIME),
    ]
)
_REPLAYED_HOUR: Final = pa.struct(
    [
        ("hour", pa.string()),
        ("delivered", pa.int64()),
        ("duplicates", pa.int64()),
        ("failed", pa.int64()),
    ]
)
_REPLAYED: Final = pa.schema(
    [
        ("replayId", pa.string()),
        ("webhookId", pa.string()),
        ("epoch", pa.int64()),
        ("start", pa.int64()),
        ("hours", pa.list_(_REPLAYED_HOUR)),
    ]
)


def owed(records: DataFrame, here: str) -> DataFrame:
    """Records of `delivery_log`: what `sift` makes of them, with whom each is owed to.

    `here` is the data centre of this log: a record without an origin was made here.
    """

    def read(*columns: Any) -> tuple[Any, ...]:
        return read_owed(here, *columns)

    named = records.withColumns(
        {
            "eventId": header("event-id"),
            "eventType": header("event-type"),
            "origin": header("origin"),
        }
    )
    sources = ("partition", "offset", "key", "value", "eventId", "eventType", "origin")
    return sift(named, sources, _OWED, read)


def settled(records: DataFrame, here: str) -> DataFrame:
    """Records of `delivery_outcomes`: what `sift` makes of them, with the place each is about."""

    def read(value: bytes | None, origin: bytes | None) -> tuple[Any, ...]:
        return read_settled(here, value, origin)

    named = records.withColumn("origin", header("origin"))
    return sift(named, ("value", "origin"), _SETTLED, read)


def replayed(records: DataFrame) -> DataFrame:
    """Records of `replay_outcomes`: what `sift` makes of them, with counts by hour."""
    return sift(records, ("value",), _REPLAYED, read_replayed)


def read_owed(
    here: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    event_id: bytes | None,
    event_type: bytes | None,
    origin: bytes | None,
) -> tuple[Any, ...]:
    """What there is to know of a record of `delivery_log`.

    Raises:
        UndecodableRecord: nobody is owed it.
    """
    webhook_id = webhook_of(key)
    name = _text(event_id) or place_name(partition, offset)
    digest = lasting_digest(name, value or b"")
    return webhook_id, _text(origin) or here, name, _text(event_type), digest


def read_settled(here: str, value: bytes | None, origin: bytes | None) -> tuple[Any, ...]:
    """What a record of `delivery_outcomes` tells.

    Raises:
        UndecodableRecord: it is none.
    """
    told = settled_delivery(value)
    return (
        _text(origin) or here,
        told.partition,
        told.offset,
        told.digest,
        told.outcome.value,
        told.attempts,
        told.status,
        _EPOCH + timedelta(milliseconds=told.settled_ms),
    )


def read_replayed(value: bytes | None) -> tuple[Any, ...]:
    """What a record of `replay_outcomes` tells.

    Raises:
        UndecodableRecord: it is none.
    """
    told = replayed_stretch(value)
    hours = [each._asdict() for each in told.hours]
    return told.replay_id, told.webhook_id, told.epoch, told.start, hours


def _text(header_value: bytes | None) -> str:
    return (header_value or b"").decode("utf-8", "replace")
