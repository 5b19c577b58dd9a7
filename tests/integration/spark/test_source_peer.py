"""Comparison of `format("rewind")` with Spark's `format("kafka")` for the same options."""

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, spark_partition_id

from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.written_log import Row, Sent, WrittenLog, produce
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.spark.kafka_connector import add_connector

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]

NOW_MS = time.time_ns() // 1_000_000


class Topics:
    """Topics with transactions, compaction, deleted records, headers and late records."""

    def __init__(self, log: WrittenLog) -> None:
        run = uuid4().hex
        self.log = log
        self.plain = f"peer-plain-{run}"
        self.decided = f"peer-decided-{run}"
        self.compacted = f"peer-compacted-{run}"
        # Started first, because Kafka compacts only periodically.
        self._write_compacted()
        self._write_plain()
        self._write_transactions()
        self.all = f"peer-[a-z]+-{run}"

    def _write_plain(self) -> None:
        self.log.make_topic(self.plain, 3)
        records = [
            Sent(
                value=None if n % 11 == 0 else b"value %d" % n,
                key=None if n % 5 == 0 else b"key %d" % n,
                partition=n % 2,
                timestamp=NOW_MS + n * 10 - (n % 4) * 500,
                headers=[("kind", b"x"), ("kind", None)] if n % 3 == 0 else [],
            )
            for n in range(1_000)
        ]
        for at, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
            part = records[at * 250 : (at + 1) * 250]
            self.log.publish(self.plain, part, compression_type=codec)
        self.log.delete_before(self.plain, 1, 40)

    def _write_transactions(self) -> None:
        """Committed and aborted transactions, and an open one."""
        self.log.make_topic(self.decided)
        rows: list[Row] = []
        producer = self._transactional("decided")
        for outcome in (producer.commit_transaction, producer.abort_transaction) * 2:
            producer.begin_transaction()
            for n in range(25):
                produce(producer, self.decided, Sent(b"%d" % n), rows)
            # An abort would discard unsent records.
            assert producer.flush(DEADLINE_S) == 0
            outcome(DEADLINE_S)
        self.open = self._transactional("open")
        self.open.begin_transaction()
        produce(self.open, self.decided, Sent(b"open"), rows)
        assert self.open.flush(DEADLINE_S) == 0
        self.log.publish(self.decided, [Sent(b"after")])

    def _transactional(self, name: str) -> Producer:
        # Kafka's maximum: the transaction must stay open in every test.
        own = {"transactional.id": f"{name}-{uuid4()}", "transaction.timeout.ms": 900_000}
        producer = Producer({"bootstrap.servers": self.log.bootstrap_servers, **own})
        producer.init_transactions(DEADLINE_S)
        return producer

    def _write_compacted(self) -> None:
        self.log.make_topic(
            self.compacted,
            cleanup_policy="compact",
            segment_ms="100",
            min_cleanable_dirty_ratio="0.001",
            min_compaction_lag_ms="0",
        )
        same = [Sent(b"value %d" % n, key=b"key %d" % (n % 7)) for n in range(100)]
        self.log.publish(self.compacted, same)

    def until_compacted(self) -> None:
        # The active segment is never compacted, so roll it.
        def has_gap() -> bool:
            self.log.publish(self.compacted, [Sent(b"newer", key=b"newer")])
            return self._first_offset() > 0

        until(has_gap, "records were compacted away", DEADLINE_S * 2)

    def _first_offset(self) -> int:
        group = {"group.id": "look", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.log.bootstrap_servers, **group})
        try:
            consumer.subscribe([self.compacted])
            (message,) = consumer.consume(1, DEADLINE_S)
            return message.offset() or 0
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def topics(apache_kafka: KafkaServer) -> Topics:
    return Topics(WrittenLog(apache_kafka.bootstrap_servers))


@pytest.fixture
def peers(spark: SparkSession) -> SparkSession:
    add_connector(spark)
    return spark


def content(frame: DataFrame) -> list[Any]:
    return sorted(map(repr, frame.collect()))


def tasks(frame: DataFrame) -> list[Any]:
    """The topic, partition, first and last offset of each task."""
    grouped = frame.groupBy(spark_partition_id(), "topic", "partition")
    rows = grouped.agg({"offset": "min"}).collect(), grouped.agg({"offset": "max"}).collect()
    return [sorted(tuple(row)[1:] for row in each) for each in rows]


def batches(topics: Topics) -> dict[str, dict[str, Any]]:
    """Options of batches by subject."""
    plain, times = topics.plain, {"0": NOW_MS + 1_000, "1": NOW_MS + 2_000, "2": NOW_MS}
    offsets = {"0": 17, "1": 60, "2": -2}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    return {
        "subscribe": {"subscribe": f"{plain},{topics.compacted}", "includeHeaders": "true"},
        "pattern": {"subscribePattern": topics.all, "failOnDataLoss": "false"},
        "pattern within a name": {"subscribePattern": topics.plain[5:]},
        "assign": {"assign": json.dumps({plain: [1]}), "includeHeaders": "true"},
        "offsets": {
            "subscribe": plain,
            "startingOffsets": json.dumps({plain: offsets}),
            "endingOffsets": json.dumps({plain: {"0": 400, "1": -1, "2": 0}}),
        },
        "time": {
            "subscribe": plain,
            "startingTimestamp": NOW_MS + 3_000,
            **latest,
            "endingTimestamp": NOW_MS + 7_000,
            "startingOffsets": "earliest",
        },
        "times": {
            "subscribe": plain,
            "startingOffsetsByTimestamp": json.dumps({plain: times}),
            **latest,
        },
        "late time": {"subscribe": plain, "startingTimestamp": NOW_MS * 2, **latest},
        "gone": {
            "assign": json.dumps({plain: [1]}),
            "failOnDataLoss": "false",
            "startingOffsets": json.dumps({plain: {"1": 5}}),
        },
        "uncommitted": {"subscribe": topics.decided},
        "committed": {"subscribe": topics.decided, "kafka.isolation.level": "read_committed"},
        "compacted": {"subscribe": topics.compacted, "startingOffsets": "earliest"},
    }


REFUSED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "two ways": {"subscribe": "t", "subscribePattern": "t"},
    "latest": {"startingOffsets": "latest"},
    "earliest": {"endingOffsets": "earliest"},
    "reset": {"kafka.auto.offset.reset": "earliest"},
    "commit": {"kafka.enable.auto.commit": "true"},
    "partitions": {"minPartitions": "0"},
    "late time": {"startingTimestamp": NOW_MS * 2},
    "some partitions": {"startingOffsets": '{"%s":{"0":1}}'},
    "gone": {"startingOffsets": '{"%s":{"0":0,"1":5,"2":0}}'},
}


def test_batches_equal_those_of_sparks_connector(peers: SparkSession, topics: Topics) -> None:
    topics.until_compacted()
    for name, options in batches(topics).items():
        ours, theirs = (read(peers, topics, form, options) for form in ("rewind", "kafka"))
        assert ours.schema == theirs.schema, name
        found = content(ours)
        assert found == content(theirs), name
        assert bool(found) == (name != "late time"), name
    # The connector knows the size of a range only with explicit bounds.
    bounds = {
        name: batches(topics)["offsets"][name] for name in ("startingOffsets", "endingOffsets")
    }
    for split in ({"minPartitions": 7}, {"maxRecordsPerPartition": 90, **bounds}):
        options = {"subscribe": topics.plain, **split}
        split_ours, split_theirs = (
            tasks(read(peers, topics, form, options)) for form in ("rewind", "kafka")
        )
        assert split_ours == split_theirs, split


def test_options_rejected_by_sparks_connector_are_rejected(
    peers: SparkSession, topics: Topics
) -> None:
    for name, options in REFUSED.items():
        given = {key: str(value).replace("%s", topics.plain) for key, value in options.items()}
        given["fetchOffset.numRetries"] = "1"
        if name != "nothing":
            given["subscribe"] = topics.plain
        for form in ("rewind", "kafka"):
            with pytest.raises((PySparkException, Py4JJavaError)):
                pytest.fail(f"{form} takes {name}: {read(peers, topics, form, given).collect()}")


def test_checkpoints_equal_those_of_sparks_connector(
    peers: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    options: dict[str, str | int] = {
        "kafka.bootstrap.servers": topics.log.bootstrap_servers,
        "subscribe": topics.plain,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 333,
    }
    ends = {}
    for form in ("rewind", "kafka"):
        stream = peers.readStream.format(form).options(**options).load()
        folder = tmp_path / form
        query = (
            stream.select(col("topic"), col("partition"), col("offset"), col("value"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "rows"))
        )
        assert query.awaitTermination(round(DEADLINE_S * 2))
        logged = sorted((folder / "checkpoint/offsets").glob("[0-9]*"), key=lambda it: int(it.name))
        ends[form] = [json.loads(each.read_text().splitlines()[2]) for each in logged]
    assert len(ends["rewind"]) == 3
    assert ends["rewind"] == ends["kafka"]
    rows = [content(peers.read.parquet(str(tmp_path / form / "rows"))) for form in ends]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 960


def read(spark: SparkSession, topics: Topics, form: str, options: dict[str, Any]) -> DataFrame:
    servers = {"kafka.bootstrap.servers": topics.log.bootstrap_servers}
    return spark.read.format(form).options(**servers, **options).load()
