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

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql import DataFrame, Row

from spark_jobs.errors import InvalidOption, SourceFailed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLUSH_S: Final = 120.0
"""Longer than the client's delivery timeout, after which it reports each record."""

_DELIVERY_MS: Final = 60_000
_POLL_S: Final = 0.1


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
    failures: list[KafkaError] = []

    def record_failure(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = _producer(properties)
    for each in records:
        while True:
            try:
                producer.produce(topic, on_delivery=record_failure, **each)
                break
            except BufferError:
                producer.poll(_POLL_S)
            except KafkaException as refusal:
                failures.append(refusal.args[0])
                break
        producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if failures or left:
        reason = failures[0].str() if failures else "no response"
        raise SourceFailed(f"{len(failures) + left} counts were not published to {topic}: {reason}")


def _producer(properties: Mapping[str, str]) -> Producer:
    configuration: dict[str, Any] = {
        "client.id": "rewind-counts",
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": _DELIVERY_MS,
        "linger.ms": 5,
        "log_level": 0,
        **properties,
    }
    try:
        return Producer(configuration)
    except KafkaException as refusal:
        raise InvalidOption(f"invalid client properties: {refusal.args[0].str()}") from refusal


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat() + "Z"
