"""What a scrape says of topics and of their logs."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from logbroker.server.metrics.families import numbers
from logbroker.server.partition import Partition, Partitions

TRAFFIC: Final = ("bytes_in", "messages_in", "bytes_out", "messages_out")
LOG_GAUGES: Final = ("log_start_offset", "log_end_offset", "high_watermark", "log_size_bytes")
TOPIC_GAUGES: Final = (
    *("topic_partitions", "topic_size_bytes", "topic_messages", "topic_unflushed_messages"),
)

Row = tuple[int, ...]


def log_metrics(partitions: Partitions, shown_max: int) -> Iterator[Metric]:
    """Traffic and sums of each topic; each partition's own where there are at most `shown_max`."""
    yield from _traffic(partitions)
    served = partitions.all()
    rows = [_row(partition) for partition in served]
    yield from _of_topics(served, rows)
    yield from _of_partitions(served, rows) if len(served) <= shown_max else _of_partitions((), ())


def _row(partition: Partition) -> Row:
    """Start, end, high watermark, size in bytes."""
    log = partition.log
    # In this order nothing is negative that is made of two, while the loop's thread goes on.
    start, high_watermark = log.log_start_offset, log.high_watermark
    return start, log.log_end_offset, high_watermark, log.size_bytes


def _traffic(partitions: Partitions) -> Iterator[Metric]:
    topics = partitions.traffic()
    for name in TRAFFIC:
        family = numbers(f"{name}_total")
        for traffic in topics:
            family.add_metric((traffic.topic,), getattr(traffic, name))
        yield family


def _of_topics(served: Sequence[Partition], rows: Sequence[Row]) -> Iterator[Metric]:
    sums: dict[str, list[int]] = {}
    for partition, (start, end, high_watermark, size_bytes) in zip(served, rows, strict=True):
        of_topic = sums.setdefault(partition.topic.name, [0, 0, 0, 0])
        of_topic[0] += 1
        of_topic[1] += size_bytes
        of_topic[2] += end - start
        of_topic[3] += end - high_watermark
    for position, name in enumerate(TOPIC_GAUGES):
        family = numbers(name)
        for topic, values in sums.items():
            family.add_metric((topic,), values[position])
        yield family


def _of_partitions(served: Sequence[Partition], rows: Sequence[Row]) -> Iterator[Metric]:
    places = [(each.topic.name, str(each.log.partition)) for each in served]
    for position, name in enumerate(LOG_GAUGES):
        family = numbers(name)
        for place, row in zip(places, rows, strict=True):
            family.add_metric(place, row[position])
        yield family
