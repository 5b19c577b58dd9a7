"""Deliveries, their outcomes and replays as columns, parsed from records in tasks."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.jobs.delivery_records import (
    default_event_id,
    event_digest,
    parse_delivery_outcome,
    parse_replay_outcome,
    parse_webhook_id,
)
from spark_jobs.jobs.parsing import TIME, header, parse_records

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DELIVERY: Final = pa.schema(
    [
        ("webhookId", pa.string()),
        ("origin", pa.string()),
        ("eventId", pa.string()),
        ("eventType", pa.string()),
        ("digest", pa.int64()),
        ("accountId", pa.string()),
    ]
)
_OUTCOME: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("owedPartition", pa.int32()),
        ("owedOffset", pa.int64()),
        ("digest", pa.int64()),
        ("outcome", pa.string()),
        ("attempts", pa.int32()),
        ("status", pa.int32()),
        ("settledTime", TIME),
        ("reason", pa.string()),
        ("durationMs", pa.float64()),
        ("isWaiting", pa.bool_()),
        ("server", pa.string()),
    ]
)
_REPLAY_HOUR: Final = pa.struct(
    [
        ("hour", pa.string()),
        ("delivered", pa.int64()),
        ("duplicates", pa.int64()),
        ("failed", pa.int64()),
    ]
)
_REPLAY: Final = pa.schema(
    [
        ("replayId", pa.string()),
        ("webhookId", pa.string()),
        ("epoch", pa.int64()),
        ("start", pa.int64()),
        ("hours", pa.list_(_REPLAY_HOUR)),
    ]
)


def parse_deliveries(records: DataFrame, local_origin: str) -> DataFrame:
    """Records of `delivery_log` as `parse_records` returns them, with their webhook and event.

    `local_origin` is the data centre of this log, the origin of records without that header.
    """

    def read(*columns: Any) -> tuple[Any, ...]:
        return parse_delivery(local_origin, DeliveryRecord(*columns))

    headers = {
        "eventId": header("event-id"),
        "eventType": header("event-type"),
        "origin": header("origin"),
        "accountId": header("account-id"),
    }
    sources = ("partition", "offset", "key", "value", *headers)
    return parse_records(records.withColumns(headers), sources, _DELIVERY, read)


def parse_outcomes(records: DataFrame, local_origin: str) -> DataFrame:
    """Records of `delivery_outcomes` as `parse_records` returns them, with the delivery's place."""

    def read(*columns: Any) -> tuple[Any, ...]:
        return parse_outcome(local_origin, *columns)

    named = records.withColumns({"origin": header("origin"), "server": header("server")})
    return parse_records(named, ("value", "origin", "server"), _OUTCOME, read)


def parse_replays(records: DataFrame) -> DataFrame:
    """Records of `replay_outcomes` as `parse_records` returns them, with counts by hour."""
    return parse_records(records, ("value",), _REPLAY, parse_replay)


class DeliveryRecord(NamedTuple):
    """What is read of a record of `delivery_log`; the last four are headers."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    event_id: bytes | None
    event_type: bytes | None
    origin: bytes | None
    account_id: bytes | None


def parse_delivery(local_origin: str, record: DeliveryRecord) -> tuple[Any, ...]:
    """The columns of a record of `delivery_log`.

    Raises:
        UndecodableRecord: its key is not a webhook id.
    """
    webhook_id = parse_webhook_id(record.key)
    event_id = _text(record.event_id) or default_event_id(record.partition, record.offset)
    digest = event_digest(event_id, record.value or b"")
    return (
        webhook_id,
        _text(record.origin) or local_origin,
        event_id,
        _text(record.event_type),
        digest,
        None if record.account_id is None else _text(record.account_id),
    )


def parse_outcome(
    local_origin: str, value: bytes | None, origin: bytes | None, server: bytes | None
) -> tuple[Any, ...]:
    """The columns of a record of `delivery_outcomes`.

    Raises:
        UndecodableRecord: its value is malformed.
    """
    outcome = parse_delivery_outcome(value)
    return (
        _text(origin) or local_origin,
        outcome.partition,
        outcome.offset,
        outcome.digest,
        outcome.outcome.value,
        outcome.attempts,
        outcome.status,
        _EPOCH + timedelta(milliseconds=outcome.time_ms),
        outcome.reason,
        outcome.duration_ms,
        outcome.is_waiting,
        None if server is None else _text(server),
    )


def parse_replay(value: bytes | None) -> tuple[Any, ...]:
    """The columns of a record of `replay_outcomes`.

    Raises:
        UndecodableRecord: its value is malformed.
    """
    replay = parse_replay_outcome(value)
    hours = [each._asdict() for each in replay.hours]
    return replay.replay_id, replay.webhook_id, replay.epoch, replay.start, hours


def _text(header_value: bytes | None) -> str:
    return (header_value or b"").decode("utf-8", "replace")
