"""Reads record batches as brokers keep them, without a look inside: for who decodes many at once.

It speaks to logbroker and to Apache Kafka from 1.0 on, over TLS and with a password where they ask
for that. Within a thread:

    with RawCluster({"bootstrap.servers": "log:9092"}) as cluster:
        place = TopicPartition("events", 0)
        start = cluster.offsets({place: EARLIEST})[place]
        end = cluster.offsets({place: LATEST})[place]
        with RawReader(cluster, place, start, end) as reader:
            for chunk in reader:
                decode(chunk.records)
"""

from logbroker.client.raw.chunk import RawChunk
from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.directory import TopicPartition, TopicPlan
from logbroker.client.raw.list_offsets import EARLIEST, LATEST
from logbroker.client.raw.log_dirs import LogSizes, log_sizes
from logbroker.client.raw.reader import RawReader
from logbroker.wire.fetch_client import AbortedTransaction

__all__ = [
    "EARLIEST",
    "LATEST",
    "AbortedTransaction",
    "LogSizes",
    "RawChunk",
    "RawCluster",
    "RawReader",
    "TopicPartition",
    "TopicPlan",
    "log_sizes",
]
