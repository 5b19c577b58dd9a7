"""`spark.readStream.format("rewind")`: micro-batches, restarts, and a log that changes."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.written_log import Sent, WrittenLog
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

NOTHING_NEW = "spark.sql.streaming.noDataProgressEventInterval"


@pytest.fixture
def log(broker: BrokerProcess) -> WrittenLog:
    return WrittenLog(broker.bootstrap_servers)


@pytest.fixture
def stream(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> Iterator["Stream"]:
    stream = Stream(spark, log, tmp_path / "checkpoint")
    yield stream
    stream.stop()


class Stream:
    """A restartable query that records its batches."""

    def __init__(self, spark: SparkSession, log: WrittenLog, checkpoint: Path) -> None:
        self.batches: list[list[tuple[int, int]]] = []
        """Partition and offset of every record of each batch, tried ones included."""
        self.fail_in: int | None = None
        """The id of a batch that fails once it was read."""
        self._spark = spark
        self._servers = log.bootstrap_servers
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None

    def start(self, *, available_now: bool = False, **options: Any) -> StreamingQuery:
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        self._query = (
            self._spark.readStream.format("rewind")
            .option("kafka.bootstrap.servers", self._servers)
            .options(**options)
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger)
            .start()
        )
        return self._query

    def run(self, **options: Any) -> None:
        """Process all available records."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(round(DEADLINE_S * 2))

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def until(self, condition: Callable[[StreamingQuery], object], what: str) -> None:
        query = self._query
        assert query is not None

        def holds() -> object:
            error = query.exception()
            if error is not None:
                raise error
            return condition(query)

        until(holds, what, DEADLINE_S * 2)

    def offsets(self, batch: int) -> dict[str, dict[str, int]]:
        """The end of a batch in the checkpoint."""
        lines = (self._checkpoint / f"offsets/{batch}").read_text().splitlines()
        return dict(json.loads(lines[2]))

    def _take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select("partition", "offset").collect()
        self.batches.append(sorted((row.partition, row.offset) for row in rows))
        if self.fail_in == batch:
            self.fail_in = None
            raise RuntimeError("as the test asked for")


def some(count: int, partition: int = 0) -> list[Sent]:
    return [Sent(b"%d" % n, partition=partition) for n in range(count)]


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def test_a_failed_batch_is_repeated_and_new_partitions_are_read(
    log: WrittenLog, stream: Stream
) -> None:
    topic = f"orders-{uuid4()}"
    log.make_topic(topic, 2)
    log.publish(topic, some(300, 0) + some(100, 1))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 200}
    stream.fail_in = 1
    with pytest.raises(StreamingQueryException):
        stream.run(**options)
    assert stream.batches == [
        span(0, 0, 150) + span(1, 0, 50),
        span(0, 150, 300) + span(1, 50, 100),
    ]
    # The format of Spark's connector.
    assert stream.offsets(0) == {topic: {"0": 150, "1": 50}}

    log.publish(topic, some(10, 0))
    log.add_partitions(topic, 3)
    log.publish(topic, some(20, 2))
    stream.run(**options)
    assert stream.batches[2] == stream.batches[1]
    assert stream.batches[3:] == [span(0, 300, 310) + span(2, 0, 20)]
    assert stream.offsets(2) == {topic: {"0": 310, "1": 100, "2": 20}}


def test_records_before_the_first_commit_of_a_stream_are_not_skipped(
    log: WrittenLog, stream: Stream
) -> None:
    topic = f"orders-{uuid4()}"
    log.make_topic(topic)
    log.publish(topic, some(5))
    stream.fail_in = 0
    # It starts at the end of the log, the default of streams.
    with pytest.raises(StreamingQueryException):
        stream.run(subscribe=topic)
    log.publish(topic, some(7))
    stream.run(subscribe=topic)
    assert list(chain(*stream.batches)) == span(0, 5, 12)


def test_a_batch_waits_for_enough_records(
    spark: SparkSession, log: WrittenLog, stream: Stream
) -> None:
    topic = f"orders-{uuid4()}"
    log.make_topic(topic)
    log.publish(topic, some(10))
    # Spark also reports triggers without a batch.
    spark.conf.set(NOTHING_NEW, 1)
    try:
        stream.start(
            subscribePattern=topic[:20],
            startingOffsets="earliest",
            minOffsetsPerTrigger=100,
            maxTriggerDelay="1h",
        )
        stream.until(lambda _: stream.batches, "the first batch, which does not wait")
        log.publish(topic, some(60))

        def has_seen(query: StreamingQuery) -> bool:
            progress: Any = query.lastProgress or {"sources": [{}]}
            latest = progress["sources"][0].get("latestOffset") or "{}"
            return bool(json.loads(latest) == {topic: {"0": 70}})

        stream.until(has_seen, "60 records were seen")
        log.publish(topic, some(60))
        stream.until(lambda _: len(stream.batches) == 2, "enough for a batch")
        assert stream.batches == [span(0, 0, 10), span(0, 10, 130)]
    finally:
        spark.conf.unset(NOTHING_NEW)


def test_a_recreated_topic_stops_the_stream_or_is_read(log: WrittenLog, stream: Stream) -> None:
    topic, other = f"orders-{uuid4()}", f"others-{uuid4()}"
    options = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    for each in (topic, other):
        log.make_topic(each)
        log.publish(each, some(30))
    # A leader with an outdated end is queried again; here it never catches up.
    options |= {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "1"}
    stream.run(**options)
    log.delete_topic(topic)
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 .* no longer exists"):
        stream.run(**options)
    log.make_topic(topic)
    log.publish(topic, some(12))
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 .* the log now ends at 12"):
        stream.run(**options)
    log.publish(other, some(5))
    stream.run(**options, failOnDataLoss=False)
    log.publish(topic, some(3))
    stream.run(**options)
    assert [batch for batch in stream.batches if batch] == [
        sorted(span(0, 0, 30) * 2),
        span(0, 30, 35),
        span(0, 12, 15),
    ]
