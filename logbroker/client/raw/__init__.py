"""Reads record batches as brokers store them, without decoding, for bulk decoders.

It works with logbroker and with Apache Kafka from 1.0 on, with TLS and passwords if configured.
Within one thread:

    with RawCluster({"bootstrap.servers": "log:9092"}) as cluster:
        tp = TopicPartition("events", 0)
        start = cluster.offsets({tp: EARLIEST})[tp]
        end = cluster.offsets({tp: LATEST})[tp]
        with RawReader(cluster, tp, start, end) as reader:
            for chunk in reader:
                decode(chunk.records)
"""

from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.log_dirs import LogSizes, log_sizes
from logbroker.client.raw.long_poll import LongPoll
from logbroker.client.raw.parsing.chunk import RawChunk
from logbroker.client.raw.parsing.metadata import EARLIEST, LATEST, TopicDescription, TopicPartition
from logbroker.client.raw.reader import RawReader
from logbroker.wire.fetch_client import AbortedTransaction

__all__ = [
    "EARLIEST",
    "LATEST",
    "AbortedTransaction",
    "LogSizes",
    "LongPoll",
    "RawChunk",
    "RawCluster",
    "RawReader",
    "TopicDescription",
    "TopicPartition",
    "log_sizes",
]
