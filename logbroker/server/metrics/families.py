"""Every metric by its name: what it is, what it says, and its labels."""

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
        "counter", "Error codes in answers, those of single partitions too.", ("api", "error")
    ),
    "request_seconds": Family(
        "histogram", "From reading a request to its answer, what it waits for included.", ("api",)
    ),
    "bytes_in_total": Family("counter", "Bytes of record batches appended.", _TOPIC),
    "messages_in_total": Family("counter", "Records appended.", _TOPIC),
    "bytes_out_total": Family("counter", "Bytes of record batches in Fetch answers.", _TOPIC),
    "messages_out_total": Family(
        "counter", "Records in Fetch answers, from the offset asked for.", _TOPIC
    ),
    "flushes_total": Family("counter", "Flushes of a log that went well."),
    "flush_seconds": Family("histogram", "How long these took on the disk."),
    "flush_failures_total": Family("counter", "Logs whose flush the disk refused."),
    "write_failures_total": Family("counter", "Appends that the disk refused."),
    "checkpoint_failures_total": Family("counter", "Checkpoints that the disk refused."),
    "retention_failures_total": Family("counter", "Logs whose retention the disk refused."),
    "segments_deleted_total": Family("counter", "Segments that retention has taken out."),
    "segments_deleted_bytes_total": Family("counter", "Bytes of these segments."),
    "disk_free_bytes": Family("gauge", "Room left for the broker where its data directory is."),
    "partitions_refusing": Family("gauge", "Partitions whose last write the disk refused."),
    "partitions_failed": Family(
        "gauge", "Partitions that take no appends until restart, as a flush failed."
    ),
    "partitions_unusable": Family("gauge", "Partitions led here whose folders cannot be opened."),
    "partitions_leaderless": Family(
        "gauge", "Partitions of the cluster whose brokers are all away."
    ),
    "partitions_led": Family("gauge", "Partitions that this broker serves."),
    "topics_unreadable": Family("gauge", "Topics whose metadata nobody can read."),
    "registered": Family("gauge", "1 while the cluster knows this broker."),
    "registry_available": Family(
        "gauge", "1 while ZooKeeper was heard of lately; always for a broker alone."
    ),
    "brokers_alive": Family("gauge", "Brokers that are registered."),
    "connections": Family("gauge", "Open connections of clients."),
    "connections_opened_total": Family("counter", "Connections accepted."),
    "connections_refused_total": Family("counter", "Connections over the limit."),
    "connections_broken_total": Family(
        "counter", "Connections closed for a malformed or oversized request."
    ),
    "groups": Family("gauge", "Consumer groups that this broker coordinates.", ("state",)),
    "group_members": Family("gauge", "Members of these groups."),
    "group_rebalances_total": Family("counter", "New generations of consumer groups."),
    "recovery_seconds": Family("gauge", "How long opening all logs took at the start."),
    "recovered_logs": Family("gauge", "Logs that were not closed cleanly before the start."),
    "recovery_dropped_bytes": Family("gauge", "Bytes that recovery dropped from these."),
    "topic_partitions": Family("gauge", "Partitions of a topic that this broker serves.", _TOPIC),
    "topic_size_bytes": Family("gauge", "Bytes of their segments.", _TOPIC),
    "topic_messages": Family("gauge", "Records between their starts and ends.", _TOPIC),
    "topic_unflushed_messages": Family("gauge", "Records that wait for a flush.", _TOPIC),
    "log_start_offset": Family("gauge", "First offset that can be read.", _PARTITION),
    "log_end_offset": Family("gauge", "Offset of the next record.", _PARTITION),
    "high_watermark": Family("gauge", "First offset that is not flushed yet.", _PARTITION),
    "log_size_bytes": Family("gauge", "Bytes of a log's segments.", _PARTITION),
}
"""Without `PREFIX`."""

MetricFamily = CounterMetricFamily | GaugeMetricFamily


def numbers(name: str) -> MetricFamily:
    """The counter or gauge of this name, without a value yet."""
    kind, text, labels = FAMILIES[name]
    assert kind != "histogram", f"{name} is no single number"
    made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    return made(PREFIX + name, text, labels=labels)


def histogram(name: str) -> HistogramMetricFamily:
    """The histogram of this name, without a value yet."""
    kind, text, labels = FAMILIES[name]
    assert kind == "histogram", f"{name} is no histogram"
    return HistogramMetricFamily(PREFIX + name, text, labels=labels)
