"""Measures the nightly load from a topic into Parquet on two cores, in records/s, and its memory.

Baselines: a stock consumer that discards the records, Spark from Parquet to Parquet, and Spark's
own Kafka connector to Parquet. Values have 200 bytes, half of them random. Batches in the log are
compressed with snappy; all writers use zstd at level 1, as Arrow does. Sessions are created and
every method runs once before the clock starts. Spark writes all rows of a task into one file, which
spares it the sort that files by hour would need.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks.kafka_connector import connector_jars
from benchmarks.running_broker import RunningBroker, fresh_broker
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, share_at_least, share_at_most
from spark_jobs.contracts import RECORDS
from spark_jobs.jobs.load import LoadRequest, load
from spark_jobs.offsets.limits import Subscribed
from spark_jobs.tables import read_table

CORES: Final = 2
PARTITIONS: Final = 4
VALUE_BYTES: Final = 200
WARM_RECORDS: Final = 100_000
FEWER: Final = 10
"""The driver's memory is also measured for a tenth of the records."""

_POOL_BYTES: Final = 1 << 20
_CONSUMED_AT_ONCE: Final = 10_000
_TEXT: Final = b'{"id": "evt_0123456789", "type": "follow.created", "data": {"actor": "a", "of": "'


class Round(NamedTuple):
    """Records/s of each method in one round."""

    load: float
    plain_read: float
    rewrite: float
    connector: float | None


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every method in each round, then the driver's memory in separate processes."""
    with fresh_broker(folder) as broker:
        fill(broker, "warm", WARM_RECORDS)
        fill(broker, "few", scale.loaded_records // FEWER)
        fill(broker, "many", scale.loaded_records)
        jars = connector_jars()
        with _session(jars, folder) as spark:
            methods = _Methods(spark, broker, folder, has_connector=bool(jars))
            methods.round("warm")
            rounds = [methods.round("many") for _ in range(scale.rounds)]
        few_mb, many_mb = (_driver_peak_mb(broker, topic, folder) for topic in ("few", "many"))
    return [*_speed_lines(rounds), *_memory_lines(few_mb, many_mb, scale.loaded_records)]


def fill(broker: RunningBroker, topic: str, records: int) -> None:
    """Create a topic with `records` records, spread over its partitions."""
    broker.create_topic(topic, PARTITIONS)
    pool = random.Random(1).randbytes(_POOL_BYTES)
    text = (_TEXT * 2)[: VALUE_BYTES // 2]
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": "snappy",
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(records):
        begin = number * 97 % (_POOL_BYTES - VALUE_BYTES)
        value = text + pool[begin : begin + VALUE_BYTES // 2]
        while True:
            try:
                producer.produce(topic, value, partition=number // 1_000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


class _Methods:
    """The methods that are compared; each writes to a folder that is deleted afterwards."""

    def __init__(
        self, spark: SparkSession, broker: RunningBroker, folder: Path, *, has_connector: bool
    ) -> None:
        self._spark = spark
        self._servers = broker.bootstrap_servers
        self._folder = folder
        self._has_connector = has_connector

    def round(self, topic: str) -> Round:
        """Run each method once; Spark rewrites the rows that were just loaded."""
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            table = Path(work) / "table"
            loaded = _rate(lambda: self._load(topic, table))
            rewritten = _rate(lambda: self._rewrite(table, Path(work) / "again"))
        connector = None
        if self._has_connector:
            with tempfile.TemporaryDirectory(dir=self._folder) as work:
                connector = _rate(lambda: self._connector(topic, Path(work) / "rows"))
        return Round(loaded, _rate(lambda: self._plain_read(topic)), rewritten, connector)

    def _load(self, topic: str, table: Path) -> int:
        request = LoadRequest(
            {"bootstrap.servers": self._servers}, Subscribed((topic,)), str(table)
        )
        return load(request, lambda: self._spark).records

    def _plain_read(self, topic: str) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "plain",
                "queued.min.messages": "1000000",
            }
        )
        places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        total = sum(consumer.get_watermark_offsets(place)[1] for place in places)
        consumer.assign(places)
        count = size = 0
        while count < total:
            for message in consumer.consume(_CONSUMED_AT_ONCE, 10.0):
                size += len(message.value() or b"")
                count += 1
        consumer.close()
        assert size == total * VALUE_BYTES
        return count

    def _rewrite(self, table: Path, to: Path) -> int:
        rows = read_table(self._spark, str(table), RECORDS)
        return _written(rows, to)

    def _connector(self, topic: str, to: Path) -> int:
        rows = (
            self._spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("endingOffsets", "latest")
            .option("includeHeaders", "true")
            .load()
        )
        id_bytes = sql.expr("conv(hex(substring(value, 2, 4)), 16, 10)").cast("int")
        return _written(
            rows.select(
                *("topic", "partition", "offset", "timestamp", "timestampType"),
                *("key", "value", "headers"),
                sql.when(sql.expr("substring(value, 1, 1) = X'00'"), id_bytes).alias("schemaId"),
                sql.to_date("timestamp").alias("date"),
                sql.hour("timestamp").alias("hour"),
            ),
            to,
        )


def _written(rows: DataFrame, to: Path) -> int:
    """Write the rows with Spark; return their number, from the footers of the files."""
    rows.write.parquet(str(to))
    return rows.sparkSession.read.parquet(str(to)).count()


def _rate(method: Callable[[], int]) -> float:
    start = time.perf_counter()
    records = method()
    return records / (time.perf_counter() - start)


@contextmanager
def _session(jars: list[Path], folder: Path) -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _driver_peak_mb(broker: RunningBroker, topic: str, folder: Path) -> float:
    """Return the sum of the peak memory of the driver's Python and JVM, in units of 10**6 bytes."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        job = psutil.Popen(
            [
                *(sys.executable, "-m", "spark_jobs", "load", "--master", f"local[{CORES}]"),
                *("--bootstrap-servers", broker.bootstrap_servers, "--topics", topic),
                *("--table", f"{work}/table"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        peaks: dict[int, int] = {}
        while job.poll() is None:
            # Only direct children: in local mode, their children run the tasks.
            for process in (job, *job.children()):
                peaks[process.pid] = max(peaks.get(process.pid, 0), _peak_bytes(process.pid))
            time.sleep(0.05)
        assert job.returncode == 0, "the load failed"
    return sum(peaks.values()) / 1e6


def _peak_bytes(pid: int) -> int:
    """Return the peak resident memory of a process; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024
    return 0


def _speed_lines(rounds: list[Round]) -> list[Line]:
    loaded = median(each.load for each in rounds)
    plain = median(each.plain_read for each in rounds)
    rewritten = median(each.rewrite for each in rounds)
    found = [each.connector for each in rounds if each.connector is not None]
    lines = [
        Line("stock consumer, records discarded", plain, "records/s"),
        Line("Spark, Parquet to Parquet", rewritten, "records/s"),
        Line("rewind-jobs load, local[2]", loaded, "records/s", Baseline("stock consumer", plain)),
        Line("  payload", loaded * VALUE_BYTES / 1e6, "MB/s"),
        Line(
            "  relative to Spark, Parquet to Parquet",
            loaded,
            "records/s",
            Baseline("Spark, Parquet to Parquet", rewritten),
            share_at_least(2.0),
        ),
    ]
    if not found:
        return [*lines, Line("Spark's Kafka connector: jar not available", 0.0, "records/s")]
    connector = median(found)
    return [
        *lines,
        Line("Spark's Kafka connector to Parquet", connector, "records/s"),
        Line(
            "  relative to Spark's Kafka connector",
            loaded,
            "records/s",
            Baseline("Spark's Kafka connector", connector),
            share_at_least(1.0),
        ),
    ]


def _memory_lines(few_mb: float, many_mb: float, records: int) -> list[Line]:
    return [
        Line(f"driver's memory, {records // FEWER:,} records", few_mb, "MB"),
        Line(
            f"driver's memory, {records:,} records",
            many_mb,
            "MB",
            Baseline("a tenth of the records", few_mb),
            share_at_most(1.25),
        ),
    ]
