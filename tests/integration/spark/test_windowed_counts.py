"""Counts per type and minute on a real log, despite kills; expected numbers are by hand."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_jobs.contracts import QUARANTINE, WINDOWED_COUNTS
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.streaming import StreamRun, StreamSource
from spark_jobs.jobs.windowed_counts.job import CountedBatch, WindowedCounts
from spark_jobs.tables import open_table, read_table
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.partition_clients import ConfluentPartitions
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.spark.spark_session import JobProcess

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

START_S = int(time.time()) // 60 * 60 - 7_200
"""A whole minute, two hours ago: events of the future are not counted."""

Event = tuple[float, str | None, bytes]
"""Minutes after `START_S`, the header `event-type`, the value."""

FIRST: list[Event] = [
    (0.0, "paid", b"{}"),
    (0.9, "paid", b"{}"),
    (0.5, None, b'{"type": "paid"}'),
    (0.1, "sent", b"{}"),
    (0.2, "sent", b"{}"),
    (1.0, "paid", b"{}"),
    (1.5, None, b"garbage"),
    (300.0, "paid", b"of the future"),
    # The watermark is now at 2: the first two minutes are closed.
    (12.0, "paid", b"{}"),
]
SECOND: list[Event] = [
    # Late: three events of two types in closed minutes.
    (0.3, "paid", b"{}"),
    (0.4, "paid", b"{}"),
    (1.1, "sent", b"{}"),
    # Just in time; the watermark moves to 20.
    (2.1, "sent", b"{}"),
    (30.0, "paid", b"{}"),
]
THIRD: list[Event] = [(12.5, "paid", b"{}"), (60.0, "paid", b"{}")]

WINDOWS = {(0, "paid"): 3, (0, "sent"): 2, (1, "paid"): 1}
LATER = WINDOWS | {(2, "sent"): 1, (12, "paid"): 1}
LAST = LATER | {(30, "paid"): 1}


class Scene:
    """A log, a table of counts, and its checkpoint and topic."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.batches: list[CountedBatch] = []
        # It may have records of the future, as logs of other brokers do.
        broker.make_topic("events", 2, message_timestamp_after_max_ms=str(2**63 - 1))
        broker.make_topic("counts", 1)

    def publish(self, events: Sequence[Event]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number, (minutes, event_type, value) in enumerate(events):
            producer.produce(
                "events",
                value,
                partition=number % 2,
                timestamp=round(1_000 * (START_S + 60 * minutes)),
                headers=[] if event_type is None else [("event-type", event_type.encode())],
            )
        assert producer.flush(DEADLINE_S) == 0

    def uri(self, name: str) -> str:
        return str(self.folder / name)

    def count(self, spark: SparkSession, checkpoint: str = "checkpoint") -> None:
        """Count the available records in the test's session."""
        self.batches.clear()
        WindowedCounts(
            StreamSource({"bootstrap.servers": self.broker.bootstrap_servers}),
            "events",
            StreamRun(self.uri(checkpoint), None),
            *(self.uri("table"), self.uri("quarantine")),
            window_s=60,
            watermark_s=600,
            to_topic="counts",
        ).run_query(spark, self.batches.append)

    def process(self) -> JobProcess:
        """A counting process with a trigger of a second."""
        names = ("table", "checkpoint")
        return JobProcess(
            self.folder / "job",
            *("windowed-counts", "--bootstrap-servers", self.broker.bootstrap_servers),
            *(word for name in names for word in (f"--{name}", self.uri(name))),
            *("--quarantine-table", self.uri("quarantine"), "--to-topic", "counts"),
            *("--trigger", "1 second", "--state-partitions", "2", "--master", "local[1]"),
        )

    def windows(self, spark: SparkSession) -> dict[tuple[int, str], int]:
        """Events by minute and type; asserts that rows are unique."""
        rows = read_table(spark, self.uri("table"), WINDOWED_COUNTS).collect()
        found = {(_minute(row.windowStart), row.eventType): row.events for row in rows}
        assert len(found) == len(rows)
        assert all(row.windowEnd - row.windowStart == timedelta(minutes=1) for row in rows)
        return found

    def published(self) -> list[tuple[str, bytes]]:
        """The records of the topic in order, as key and value."""
        values = ConfluentPartitions(self.broker.bootstrap_servers).read_to_end("counts", 0)
        return [(_name(json.loads(value)), value) for value in values]

    def last_published(self) -> dict[tuple[int, str], int]:
        """The last value of each key."""
        last = [json.loads(value) for value in dict(self.published()).values()]
        starts = [datetime.fromisoformat(each["windowStart"]) for each in last]
        return {
            (_minute(start), each["eventType"]): each["events"]
            for start, each in zip(starts, last, strict=True)
        }

    def ledger(self) -> dict[str, Any]:
        """The query's state in the table's position."""
        ledger: dict[str, Any] = open_table(self.uri("table")).head().position["ledger"]
        return ledger

    def forget_last_batch(self) -> None:
        """As if the driver had died before Spark recorded its last micro-batch as complete."""
        done = list((self.folder / "checkpoint/commits").iterdir())
        last = max(int(path.name) for path in done if path.name.isdigit())
        for path in done:
            if path.name in (f"{last}", f".{last}.crc"):
                path.unlink()

    def forget_last_commit(self) -> None:
        """As if the driver had also died before its commit to the table."""
        self.forget_last_batch()
        max((self.folder / "table/_commits").rglob("*.json")).unlink()


def _minute(moment: datetime) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() - START_S) // 60


def _name(members: dict[str, Any]) -> str:
    return f"{members['windowStart']} {members['eventType']}"


def test_each_window_is_counted_once_despite_kills(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    scene = Scene(broker, tmp_path)
    scene.publish(FIRST)
    with scene.process() as process:
        process.launch()
        until(lambda: "3 windows" in process.output, "windows", DEADLINE_S * 3)
        process.kill_all()
    assert scene.windows(spark) == WINDOWS, process.output
    unread = read_table(spark, scene.uri("quarantine"), QUARANTINE).collect()
    assert sorted(bytes(row.value) for row in unread) == [b"garbage", b"of the future"]

    scene.publish(SECOND)
    scene.count(spark)
    assert scene.windows(spark) == LATER
    assert sum(each.late for each in scene.batches) == 3
    assert scene.ledger()["seen"] == 12
    assert scene.last_published() == LATER

    # Rows of the table are neither added nor published again, new ones are.
    before = scene.published()
    scene.forget_last_batch()
    scene.publish(THIRD)
    scene.count(spark)
    assert sum(each.windows for each in scene.batches) == 1
    assert scene.windows(spark) == scene.last_published() == LAST
    assert len(scene.published()) == len(before) + 1
    ledger = scene.ledger()
    assert (ledger["seen"], ledger["late"], sum(ledger["open"].values())) == (14, 4, 1)

    # Rows missing in the table are published again with the same key and value.
    before = scene.published()
    scene.forget_last_commit()
    scene.count(spark)
    assert scene.windows(spark) == LAST
    assert scene.ledger() == ledger
    assert len(scene.published()) == len(before) + 1
    assert dict(scene.published()) == dict(before)

    with pytest.raises(InvalidOption, match="new checkpoint"):
        scene.count(spark, "another")
    assert scene.windows(spark) == LAST
