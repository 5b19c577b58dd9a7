"""`spark.read.format("rewind")` on separate executors, against logbroker and Apache Kafka.

The test does not register the source: Spark finds it.
"""

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from spark_jobs.source.batch import with_fixed_offsets
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S
from tests.support.kafka.written_log import Row, Sent, WrittenLog

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
NOW_MS = time.time_ns() // 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["broker", "apache_kafka"])
def log(request: pytest.FixtureRequest) -> WrittenLog:
    return WrittenLog(request.getfixturevalue(request.param).bootstrap_servers)


def read(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("rewind").options(**options).load()


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows, by topic, partition and offset."""
    # As a number: Python would return local times.
    as_number = frame.withColumn("timestamp", col("timestamp").cast("decimal(20,3)") * 1_000)
    rows = [
        Row(
            **row.asDict()
            | {
                "key": _bytes(row.key),
                "value": _bytes(row.value),
                "timestamp": int(row.timestamp),
                "headers": row.headers and tuple((h.key, _bytes(h.value)) for h in row.headers),
            }
        )
        for row in as_number.collect()
    ]
    return in_order(rows)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def sample(count: int) -> list[Sent]:
    """Records with and without optional fields."""
    return [
        Sent(
            value=None if n % 7 == 0 else b"value %d " % n * (n % 50),
            key=None if n % 5 == 0 else b"key %d" % n,
            partition=n % 2,
            # Out of order: some records are late.
            timestamp=NOW_MS + n * 10 - (n % 3) * 1_000,
            headers=[("kind", b"x"), ("kind", None), ("", b"")] if n % 4 == 0 else [],
        )
        for n in range(count)
    ]


def test_two_topics_with_all_their_columns(spark: SparkSession, log: WrittenLog) -> None:
    orders, times = f"orders-{uuid4()}", f"times-{uuid4()}"
    log.make_topic(orders, 2)
    log.make_topic(times, 1, message_timestamp_type="LogAppendTime")
    written = log.publish(orders, sample(1_500), compression_type="snappy", linger_ms=50)
    written += log.publish(orders, sample(500), compression_type="none")
    written += log.publish(times, [Sent(b"%d" % n) for n in range(300)])
    options = {
        "kafka.bootstrap.servers": log.bootstrap_servers,
        "subscribe": f"{orders},{times}",
        "includeHeaders": True,
    }
    expected = in_order(written)

    frame = read(spark, **options, minPartitions=6)
    assert rows_of(frame) == expected
    assert 5 <= frame.rdd.getNumPartitions() <= 7
    check_schemas(spark, options, expected)
    check_filters(spark, options, expected)
    check_limits(spark, log, options, orders, expected)


def check_schemas(spark: SparkSession, options: dict[str, Any], expected: list[Row]) -> None:
    reader = spark.read.format("rewind").options(**options)
    pruned = reader.schema("offset bigint, topic string").load()
    assert sorted(map(tuple, pruned.collect())) == sorted((r.offset, r.topic) for r in expected)
    without = spark.read.format("rewind").options(**options | {"includeHeaders": False}).load()
    assert without.columns == [*Row._fields[:-1]]
    with pytest.raises(Exception, match=r"schema has size bigint; allowed are key binary"):
        reader.schema("size bigint").load().collect()


def check_filters(spark: SparkSession, options: dict[str, Any], expected: list[Row]) -> None:
    """Filter pushdown changes the number of tasks, not the rows."""
    after_ms = NOW_MS + 12_000
    after = lit(_EPOCH + timedelta(milliseconds=after_ms))
    filtered = (
        read(spark, **options)
        .where(col("partition").isin(1, 7) & (col("offset") >= 100) & (col("offset") < 700))
        .where(col("timestamp") >= after)
    )
    wanted = [
        row
        for row in expected
        if row.partition == 1 and 100 <= row.offset < 700 and row.timestamp >= after_ms
    ]
    assert wanted
    assert rows_of(filtered) == wanted
    spark.conf.set(PUSHDOWN, True)
    try:
        pushed = read(spark, **options).where(
            col("partition").isin(1, 7) & (col("offset") >= 100) & (col("offset") < 700)
        )
        pushed = pushed.where(col("timestamp") >= after)
        assert rows_of(pushed) == wanted
        assert pushed.rdd.getNumPartitions() == 1
        assert rows_of(read(spark, **options)) == expected
    finally:
        spark.conf.unset(PUSHDOWN)


def check_limits(
    spark: SparkSession,
    log: WrittenLog,
    options: dict[str, Any],
    topic: str,
    expected: list[Row],
) -> None:
    """Fixed ends do not change with later records."""
    start_ms, end_ms = NOW_MS + 3_000, NOW_MS + 9_000
    asked = {
        **{name: str(value) for name, value in options.items()},
        "subscribe": topic,
        "startingTimestamp": str(start_ms),
        "endingTimestamp": str(end_ms),
        "endingOffsets": "goes behind the time",
    }
    fixed = with_fixed_offsets(asked)
    first = rows_of(read(spark, **asked))
    late = log.publish(topic, [Sent(b"late", partition=n, timestamp=end_ms - 1) for n in (0, 1)])
    assert rows_of(read(spark, **fixed)) == first
    starts, ends = first_at(expected, topic, start_ms), first_at(expected, topic, end_ms)
    assert json.loads(fixed["endingOffsets"]) == {topic: {str(p): end for p, end in ends.items()}}
    own = [row for row in expected if row.topic == topic]
    assert first == [
        row for row in own if starts[row.partition] <= row.offset < ends[row.partition]
    ]
    from_late = {topic: {str(row.partition): row.offset for row in late}}
    after = read(spark, **options | {"subscribe": topic, "startingOffsets": json.dumps(from_late)})
    assert rows_of(after) == in_order(late)


def first_at(rows: list[Row], topic: str, time_ms: int) -> dict[int, int]:
    """The first offset at the time or later, by partition; earlier times may follow."""
    late = [row for row in rows if row.topic == topic and row.timestamp >= time_ms]
    return {row.partition: row.offset for row in reversed(late)}


def test_deleted_records_fail_the_read_or_are_skipped(spark: SparkSession, log: WrittenLog) -> None:
    topic = f"old-{uuid4()}"
    log.make_topic(topic)
    written = log.publish(topic, [Sent(b"%d" % n) for n in range(50)])
    log.delete_before(topic, 0, 20)
    options = {
        "kafka.bootstrap.servers": log.bootstrap_servers,
        "assign": json.dumps({topic: [0]}),
        "startingOffsets": json.dumps({topic: {"0": 10}}),
        "includeHeaders": True,
    }
    missing = rf"cannot read {topic}-0 \[10, 20\): the log has offsets \[20, 50\)"
    with pytest.raises(Exception, match=missing):
        read(spark, **options).collect()
    assert rows_of(read(spark, **options, failOnDataLoss=False)) == written[20:]

    beyond = options | {"startingOffsets": json.dumps({topic: {"0": 70}})}
    with pytest.raises(Exception, match=rf"cannot read {topic}-0 \[70, 50\)"):
        read(spark, **beyond).collect()
    assert rows_of(read(spark, **beyond, failOnDataLoss=False)) == []
    with pytest.raises(Exception, match="subscribe has topic nothing-here: does not exist"):
        read(
            spark, **{"kafka.bootstrap.servers": log.bootstrap_servers, "subscribe": "nothing-here"}
        ).collect()
