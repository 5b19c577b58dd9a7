"""Publishes counts of windows to a topic, at least once: the last value of a key counts.

Key: the start of the window and the type, `2026-11-21T08:04:00Z order.paid`. Timestamp: the start.
Value: JSON,

    {"windowStart": "2026-11-21T08:04:00Z", "windowEnd": "2026-11-21T08:05:00Z",
     "eventType": "order.paid", "events": 1204}

A repeated count has the same key and the same value.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, Row

from spark_jobs.log.publishing import TopicPublisher

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SETTINGS: Final = {
    "client.id": "rewind-counts",
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": 60_000,
    "linger.ms": 5,
}


def publish(counts: DataFrame, topic: str, properties: Mapping[str, str], window_s: int) -> None:
    """Publish counts from Spark tasks; all are acknowledged on return.

    `counts` has the columns `startMs`, `eventType` and `events`.

    Raises:
        SourceFailed: the log did not acknowledge all counts; raised by failed tasks.
    """
    settings = dict(properties)

    def publish_rows(rows: Iterable[Row]) -> None:
        records = (record(row.startMs, row.eventType, row.events, window_s) for row in rows)
        publish_all(records, topic, settings)

    counts.select("startMs", "eventType", "events").foreachPartition(publish_rows)


def record(start_ms: int, event_type: str, events: int, window_s: int) -> dict[str, Any]:
    """The arguments of `Producer.produce` for a count."""
    start = _EPOCH + timedelta(milliseconds=start_ms)
    members = {
        "windowStart": _text(start),
        "windowEnd": _text(start + timedelta(seconds=window_s)),
        "eventType": event_type,
        "events": events,
    }
    return {
        "key": f"{_text(start)} {event_type}".encode(),
        "value": json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode(),
        # Timestamps of records cannot be before 1970.
        "timestamp": max(0, start_ms),
    }


def publish_all(
    records: Iterable[Mapping[str, Any]], topic: str, properties: Mapping[str, str]
) -> None:
    """Publish records, and return when the log has acknowledged all of them.

    Raises:
        SourceFailed: the log did not acknowledge all of them.
        InvalidOption: the client rejects a property.
    """
    TopicPublisher(topic, properties, _SETTINGS).publish_all(records)


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat() + "Z"
