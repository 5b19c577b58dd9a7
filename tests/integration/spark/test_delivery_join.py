"""The join of deliveries with their outcomes on a real log; expected rows are computed by hand."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import DELIVERY_JOIN, QUARANTINE
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.delivery_join import DeliveryJoin, JoinedBatch
from spark_jobs.jobs.streaming import StreamRun, StreamSource, compute_only
from spark_jobs.tables import read_table
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

START_S = int(time.time()) - 86_400
HERE = "east"
SERVER = "host-1"


class Delivery(NamedTuple):
    """An event, by seconds after `START_S`."""

    at_s: float
    event: str
    origin: str = HERE
    account: str = ""

    def publish(self, producer: Producer) -> None:
        headers = {
            "event-id": self.event,
            "event-type": "order.paid",
            "origin": self.origin,
            "account-id": self.account,
        }
        producer.produce(
            "delivery_log",
            b"{}",
            key=b"wh_1",
            partition=0,
            timestamp=_ms(self.at_s),
            headers=[(name, text.encode()) for name, text in headers.items() if text],
        )


class DeliveryOutcome(NamedTuple):
    """The outcome of the delivery at an offset."""

    offset: int
    settled_s: float
    outcome: str = "delivered"
    status: int | None = 200
    origin: str = HERE
    reason: str | None = None
    duration_ms: float | None = None

    def publish(self, producer: Producer) -> None:
        settled = datetime.fromtimestamp(_ms(self.settled_s) / 1_000, UTC)
        members = {
            "partition": 0,
            "offset": self.offset,
            "eventId": "whatever",
            "outcome": self.outcome,
            "attempts": 2,
            "status": self.status,
            "reason": self.reason,
            "time": settled.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        if self.duration_ms is not None:
            members["durationMs"] = self.duration_ms
        # Its timestamp is the event time, which is irrelevant here.
        producer.produce(
            "delivery_outcomes",
            json.dumps(members).encode(),
            headers=[("origin", self.origin.encode()), ("server", SERVER.encode())],
        )


class UnreadableRecord(NamedTuple):
    """An unreadable record."""

    topic: str

    def publish(self, producer: Producer) -> None:
        producer.produce(self.topic, b"garbage", partition=0, timestamp=_ms(5))


def _ms(at_s: float) -> int:
    return START_S * 1_000 + round(1_000 * at_s)


FIRST: Sequence[Delivery | DeliveryOutcome | UnreadableRecord] = [
    Delivery(0, "evt_0"),
    Delivery(10, "evt_1"),
    Delivery(20, "evt_2", account="acme"),
    # Without the header origin.
    Delivery(30, "evt_3", origin=""),
    # Mirrored: the position in its outcome is of another log, and evt_1's here.
    Delivery(40, "evt_4", origin="west"),
    DeliveryOutcome(1, 99, "failed", origin="west"),
    DeliveryOutcome(0, 1.25, duration_ms=31.2),
    # Two outcomes after a crash: the first one counts.
    DeliveryOutcome(2, 22, "failed", 503, reason="HTTP 503", duration_ms=4),
    DeliveryOutcome(2, 23),
    UnreadableRecord("delivery_log"),
    UnreadableRecord("delivery_outcomes"),
]
SECOND: Sequence[Delivery | DeliveryOutcome | UnreadableRecord] = [
    # More than fifteen minutes after the event time: not in time.
    DeliveryOutcome(1, 911),
    # In time by a millisecond.
    DeliveryOutcome(3, 930, "left", None, reason="the receiver is failing"),
    # The second outcome is repeated much later.
    DeliveryOutcome(2, 24),
    # Everything before 4,800 s is behind the watermark.
    Delivery(6_000, "evt_6"),
    DeliveryOutcome(6, 6_000.5),
]
THIRD: Sequence[Delivery | DeliveryOutcome | UnreadableRecord] = [
    Delivery(12_000, "evt_7"),
    DeliveryOutcome(7, 12_001),
    # Behind the watermark, unlike its outcome.
    Delivery(4_700, "evt_8"),
    DeliveryOutcome(8, 4_950),
    # Not behind the watermark.
    Delivery(4_900, "evt_9"),
    DeliveryOutcome(9, 4_901),
]

ROWS = {
    0: ("evt_0", "delivered", 200, 1_250),
    2: ("evt_2", "failed", 503, 2_000),
}
LATER = ROWS | {
    1: ("evt_1", None, None, None),
    3: ("evt_3", "left", None, 900_000),
    6: ("evt_6", "delivered", 200, 500),
}
LAST = LATER | {
    7: ("evt_7", "delivered", 200, 1_000),
    9: ("evt_9", "delivered", 200, 1_000),
}


class Scene:
    """A log, and the table of the join."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = {"bootstrap.servers": broker.bootstrap_servers}
        self._source = StreamSource(self._bootstrap)
        self._run = StreamRun(str(folder / "checkpoint"), None)
        self._folder = folder
        self.batches: list[JoinedBatch] = []
        for topic in ("delivery_log", "delivery_outcomes"):
            broker.make_topic(topic)

    def publish(self, records: Sequence[Delivery | DeliveryOutcome | UnreadableRecord]) -> None:
        producer = Producer(self._bootstrap)
        for record in records:
            record.publish(producer)
        assert producer.flush(DEADLINE_S) == 0

    def join(self) -> None:
        """Join the available records."""
        self.batches.clear()
        table, quarantine = (str(self._folder / name) for name in ("table", "quarantine"))
        join = DeliveryJoin(self._source, self._run, table, quarantine, HERE, 900, 1_200)
        join.run_query(self._spark, self.batches.append)

    def keep_in_state(self, *columns: str) -> None:
        """Run another join of both topics, whose state has these columns of `delivery_log`."""
        log, outcomes = (
            self._source.read(
                self._spark, topic, "offset long, topic string, timestamp timestamp"
            ).withWatermark("timestamp", "1 minute")
            for topic in ("delivery_log", "delivery_outcomes")
        )
        is_same = sql.expr("log.offset = outcome.offset and log.timestamp = outcome.timestamp")
        joined = log.alias("log").join(outcomes.alias("outcome"), is_same, "left")
        rows = joined.select(*(f"log.{name}" for name in columns))
        self._run.run(rows, lambda batch, _query, _number: compute_only(batch))

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """By offset: id, outcome, status and delay; asserts that events are unique."""
        rows = read_table(self._spark, str(self._folder / "table"), DELIVERY_JOIN).collect()
        found = {row.offset: (row.eventId, row.outcome, row.status, row.delayMs) for row in rows}
        assert len(found) == len(rows)
        assert {(row.webhookId, row.origin, row.eventType) for row in rows} == {
            ("wh_1", HERE, "order.paid")
        }
        return found

    def details(self) -> dict[int, tuple[Any, ...]]:
        """By offset: status of the delivery, reason, duration, server and account."""
        rows = read_table(self._spark, str(self._folder / "table"), DELIVERY_JOIN).collect()
        names = ("deliveryStatus", "reason", "durationMs", "server", "accountId")
        return {row.offset: tuple(row[name] for name in names) for row in rows}

    def quarantine(self) -> list[str]:
        """The topics of unreadable records."""
        rows = read_table(self._spark, str(self._folder / "quarantine"), QUARANTINE).collect()
        assert {bytes(row.value) for row in rows} == {b"garbage"}
        assert all(row.reason for row in rows)
        return sorted(row.topic for row in rows)

    def forget_last_batch(self) -> None:
        """As if the driver had died before Spark recorded its last micro-batch as complete."""
        done = list((self._folder / "checkpoint/commits").iterdir())
        last = max(int(path.name) for path in done if path.name.isdigit())
        for path in done:
            if path.name in (f"{last}", f".{last}.crc"):
                path.unlink()


def test_each_delivery_in_time_has_one_row(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    scene = Scene(spark, broker, tmp_path)
    scene.publish(FIRST)
    scene.join()
    assert scene.rows() == ROWS
    assert scene.quarantine() == ["delivery_log", "delivery_outcomes"]

    scene.publish(SECOND)
    scene.join()
    assert scene.rows() == LATER
    assert sum(each.unsettled for each in scene.batches) == 1
    assert sum(each.settled for each in scene.batches) == 2
    assert scene.details() == {
        0: ("succeeded", None, 31.2, SERVER, None),
        1: (None, None, None, None, None),
        2: ("failed", "HTTP 503", 4, SERVER, "acme"),
        3: ("skipped", "the receiver is failing", None, SERVER, None),
        6: ("succeeded", None, None, SERVER, None),
    }

    # Rows of the table are not added again, new ones are.
    scene.forget_last_batch()
    scene.publish(THIRD)
    scene.join()
    assert scene.rows() == LAST
    assert [(each.settled, each.unsettled) for each in scene.batches] == [(2, 0)]
    assert scene.quarantine() == ["delivery_log", "delivery_outcomes"]


def test_a_query_refuses_a_checkpoint_whose_state_has_other_columns(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    scene = Scene(spark, broker, tmp_path)
    scene.publish(FIRST)
    scene.keep_in_state("offset")
    scene.publish(SECOND)
    with pytest.raises(InvalidOption, match="new --checkpoint and a new --table"):
        scene.keep_in_state("offset", "topic")
