"""Publishes counts of windows to a topic: at least once, and the last value of a key counts.

Key: where the window begins, and the type: `2026-11-21T08:04:00Z order.paid`. Timestamp: where it
begins. Value: JSON,

    {"windowStart": "2026-11-21T08:04:00Z", "windowEnd": "2026-11-21T08:05:00Z",
     "eventType": "order.paid", "events": 1204}

A count that is published again has the same key and the same value.
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
"""More than the client's own limit of a delivery, after which it tells of each."""

_DELIVERY_MS: Final = 60_000
_POLL_S: Final = 0.1


def publish(counts: DataFrame, topic: str, properties: Mapping[str, str], window_s: int) -> None:
    """Publish counts from Spark's tasks; all are acknowledged when this returns.

    They have the columns `startMs`, `eventType` and `events`.

    Raises:
        SourceFailed: the log did not acknowledge all of them, by a failure of tasks.
    """
    settings = dict(properties)

    def publish_rows(rows: Iterable[Row]) -> None:
        records = (record(row.startMs, row.eventType, row.events, window_s) for row in rows)
        publish_all(records, topic, settings)

    counts.select("startMs", "eventType", "events").foreachPartition(publish_rows)


def record(start_ms: int, event_type: str, events: int, window_s: int) -> dict[str, Any]:
    """What a producer is given for a count."""
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
        # A record's time cannot be before 1970.
        "timestamp": max(0, start_ms),
    }


def publish_all(
    records: Iterable[Mapping[str, Any]], topic: str, properties: Mapping[str, str]
) -> None:
    """Publish records, and return when the log has acknowledged all.

    Raises:
        SourceFailed: it did not.
        InvalidOption: a property is none of this client's.
    """
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = _producer(properties)
    for each in records:
        while True:
            try:
                producer.produce(topic, on_delivery=note, **each)
                break
            except BufferError:
                producer.poll(_POLL_S)
            except KafkaException as refusal:
                failures.append(refusal.args[0])
                break
        producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if failures or left:
        reason = failures[0].str() if failures else "no answer"
        raise SourceFailed(f"{len(failures) + left} counts are not in {topic}: {reason}")


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
        raise InvalidOption(f"the client's properties: {refusal.args[0].str()}") from refusal


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat() + "Z"
