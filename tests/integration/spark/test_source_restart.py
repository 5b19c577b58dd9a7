"""Restart of a stream before its first commit, without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyspark_rewind import DefaultSource
from spark_jobs.source.partitions import RangePartition
from spark_jobs.source.query.columns import default_schema
from spark_jobs.source.stream import Json, StreamReader
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.written_log import Sent, WrittenLog

TOPIC = "orders"


@pytest.fixture
def log(broker: BrokerProcess) -> WrittenLog:
    return WrittenLog(broker.bootstrap_servers)


@contextmanager
def running(log: WrittenLog) -> Iterator[StreamReader]:
    """The reader of a stream from the earliest offset."""
    options = {"kafka.bootstrap.servers": log.bootstrap_servers, "subscribe": TOPIC}
    source = DefaultSource(options | {"startingOffsets": "earliest"})
    reader = source.streamReader(default_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    try:
        yield reader
    finally:
        reader.stop()


def planned(reader: StreamReader, start: Json, end: Json) -> list[str]:
    partitions = reader.partitions(start, end)
    return [str(each.wanted) for each in partitions if isinstance(each, RangePartition)]


def test_a_new_partition_is_read_by_the_second_micro_batch(
    log: WrittenLog,
) -> None:
    log.make_topic(TOPIC)
    log.publish(TOPIC, [Sent(b"", partition=0)] * 10)
    with running(log) as first:
        start = first.initialOffset()
        noted = first.latestOffset(start, first.getDefaultReadLimit())
    assert (start, noted) == ({TOPIC: {"0": 0}}, {TOPIC: {"0": 10}})

    log.add_partitions(TOPIC, 2)
    log.publish(TOPIC, [Sent(b"", partition=1)] * 3)
    with running(log) as second:
        # Spark requests the start again, and has stored the end.
        start = second.initialOffset()
        assert start == {TOPIC: {"0": 0, "1": 0}}
        assert planned(second, start, noted) == ["orders-0 [0, 10)"]
        end = second.latestOffset(noted, second.getDefaultReadLimit())
        assert planned(second, noted, end) == ["orders-1 [0, 3)"]
