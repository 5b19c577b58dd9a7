"""All metrics of the broker: kind, help text and labels."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

PREFIX: Final = "logbroker_"


class Family(NamedTuple):
    """One metric."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")

FAMILIES: Final[Mapping[str, Family]] = {
    "requests_total": Family("counter", "Requests.", ("api",)),
    "request_errors_total": Family(
        "counter",
        "Error codes in responses, including those of partitions.",
        ("api", "error"),
    ),
    "request_seconds": Family(
        "histogram", "Time from reading a request to its response, including waits.", ("api",)
    ),
    "bytes_in_total": Family("counter", "Bytes of record batches appended.", _TOPIC),
    "messages_in_total": Family("counter", "Records appended.", _TOPIC),
    "bytes_out_total": Family("counter", "Bytes of record batches in Fetch responses.", _TOPIC),
    "messages_out_total": Family(
        "counter", "Records in Fetch responses, from the fetch offset.", _TOPIC
    ),
    "flushes_total": Family("counter", "Successful flushes of logs."),
    "flush_seconds": Family("histogram", "Duration of successful flushes."),
    "flush_failures_total": Family("counter", "Logs whose flush failed."),
    "write_failures_total": Family("counter", "Failed writes of logs."),
    "checkpoint_failures_total": Family("counter", "Failed writes of checkpoints."),
    "retention_failures_total": Family("counter", "Failed retention runs of logs."),
    "segments_deleted_total": Family("counter", "Segments deleted by retention."),
    "segments_deleted_bytes_total": Family("counter", "Bytes of these segments."),
    "compactions_total": Family("counter", "Compactions of logs."),
    "compaction_failures_total": Family("counter", "Failed compactions of logs."),
    "compacted_bytes_total": Family("counter", "Bytes of the logs before their compactions."),
    "compaction_removed_bytes_total": Family("counter", "Bytes that compactions removed."),
    "disk_free_bytes": Family("gauge", "Free space on the file system of the data directory."),
    "partitions_write_failed": Family("gauge", "Partitions whose last write failed."),
    "partitions_flush_failed": Family(
        "gauge", "Partitions that reject appends until reopened because a flush failed."
    ),
    "partitions_open_failed": Family(
        "gauge", "Partitions of this broker whose logs cannot be opened."
    ),
    "partitions_offline": Family("gauge", "Partitions of the cluster without a leader."),
    "partitions_led": Family("gauge", "Partitions that this broker leads."),
    "topics_unreadable": Family("gauge", "Topics with unreadable metadata."),
    "registered": Family("gauge", "1 while this broker is registered in the cluster."),
    "registry_available": Family(
        "gauge", "1 while the ZooKeeper session is confirmed; always 1 for a standalone broker."
    ),
    "brokers_alive": Family("gauge", "Registered brokers."),
    "connections": Family("gauge", "Open client connections."),
    "connections_opened_total": Family("counter", "Connections accepted."),
    "connections_rejected_total": Family("counter", "Connections rejected over the limit."),
    "connections_protocol_errors_total": Family(
        "counter", "Connections closed for a malformed or oversized request."
    ),
    "authentication_failures_total": Family(
        "counter", "Connections closed because TLS or SASL authentication failed."
    ),
    "connections_muted": Family("gauge", "Connections whose requests wait because of a quota."),
    "throttled_requests_total": Family(
        "counter", "Requests, or connections, over a quota.", ("quota",)
    ),
    "throttle_seconds_total": Family("counter", "Throttle times of these, in sum.", ("quota",)),
    "groups": Family("gauge", "Consumer groups of this coordinator.", ("state",)),
    "group_members": Family("gauge", "Members of these groups."),
    "group_rebalances_total": Family("counter", "New generations of consumer groups."),
    "recovery_seconds": Family("gauge", "Duration of opening all logs at the start."),
    "recovered_logs": Family("gauge", "Logs that were not closed cleanly before the start."),
    "recovery_dropped_bytes": Family("gauge", "Bytes that recovery dropped from these."),
    "topic_partitions": Family("gauge", "Partitions of a topic that this broker leads.", _TOPIC),
    "topic_size_bytes": Family("gauge", "Bytes of their segments.", _TOPIC),
    "topic_messages": Family("gauge", "Records from log start offset to log end offset.", _TOPIC),
    "topic_unflushed_messages": Family("gauge", "Records that are not flushed yet.", _TOPIC),
    "log_start_offset": Family("gauge", "First offset of the log.", _PARTITION),
    "log_end_offset": Family("gauge", "Offset of the next record.", _PARTITION),
    "high_watermark": Family("gauge", "Offset up to which consumers can read.", _PARTITION),
    "log_size_bytes": Family("gauge", "Bytes of a log's segments.", _PARTITION),
}
"""The keys have no `PREFIX`."""

MetricFamily = CounterMetricFamily | GaugeMetricFamily


def numbers(name: str) -> MetricFamily:
    """Return the counter or gauge of this name, without values."""
    kind, text, labels = FAMILIES[name]
    assert kind != "histogram", f"{name} is a histogram"
    made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    return made(PREFIX + name, text, labels=labels)


def histogram(name: str) -> HistogramMetricFamily:
    """Return the histogram of this name, without values."""
    kind, text, labels = FAMILIES[name]
    assert kind == "histogram", f"{name} is not a histogram"
    return HistogramMetricFamily(PREFIX + name, text, labels=labels)
