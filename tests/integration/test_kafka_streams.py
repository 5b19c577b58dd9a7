"""Kafka Streams restores a windowed store from its changelog topic on this broker."""

import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.test_kafka_programs import JavaProcess, policy_of
from tests.support.kafka.apache_kafka import (
    TEST_TIMEOUT_S,
    compile_java,
    java_command,
    require_streams,
)
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.xdist_group("apache_kafka"),
]

SOURCE = Path(__file__).parents[1] / "support" / "kafka" / "kafka_streams" / "WindowedCounts.java"
INPUT, OUTPUT, CHANGELOG = "clicks", "counts", "windowed-counts-counts-changelog"
MINUTE_MS = 60_000
KEYS = 20
STOPPED = {0, 128 + signal.SIGTERM}

OPTIONS = (
    *("--cleaner-backoff-s", "0.1"),
    *("--group-initial-rebalance-delay-ms", "0"),
)


class StreamsApplication(JavaProcess):
    """The application `WindowedCounts`, with its state in the folder `state`."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.state = folder / "state"
        jars = require_streams()
        compile_java(SOURCE, jars, folder)
        properties = folder / "streams.properties"
        settings = {
            "application.id": "windowed-counts",
            "bootstrap.servers": bootstrap_servers,
            "state.dir": self.state,
            "replication.factor": 1,
            "commit.interval.ms": 100,
            "auto.offset.reset": "earliest",
            # Without a cache every count goes to the changelog, which is soon compacted.
            "statestore.cache.max.bytes": 0,
            "topic.segment.bytes": 16_384,
            "topic.min.cleanable.dirty.ratio": 0.01,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = java_command(jars, folder, SOURCE.stem)
        super().__init__([*command, str(properties), INPUT, OUTPUT], folder / "streams.log")

    def restored(self) -> int:
        """Return how many records of the changelog this run has restored."""
        return sum(map(int, re.findall(r"^restored counts (\d+)$", self.output, re.MULTILINE)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "log", *OPTIONS) as broker:
        yield broker.serve()


class CountReader:
    """Reads the last count of each key and window from the topic of the counts."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._counts: dict[str, int] = {}
        self._consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(OUTPUT, 0, 0)])

    def reads(self, expected: Mapping[str, int]) -> bool:
        """Report whether the counts have become what is expected."""
        for message in self._consumer.consume(1_000, 0.2):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                self._counts[key.decode()] = int(value)
        return self._counts == expected

    def close(self) -> None:
        self._consumer.close()


def test_a_windowed_store_is_restored_after_its_files_are_gone(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    for topic in (INPUT, OUTPUT):
        broker.make_topic(topic)
    # The store, and its changelog, keep the windows of the last day.
    now_ms = time.time_ns() // 1_000_000
    first_ms = now_ms - now_ms % MINUTE_MS - 10 * MINUTE_MS
    expected: Counter[str] = Counter()

    def click(minute: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        start_ms = first_ms + minute * MINUTE_MS
        for number in range(count):
            key = f"key-{number % KEYS}"
            producer.produce(INPUT, b"click", key, timestamp=start_ms + number)
            expected[f"{key}@{start_ms}"] += 1
        assert producer.flush(DEADLINE_S) == 0

    with (
        StreamsApplication(tmp_path, broker.bootstrap_servers) as application,
        closing(CountReader(broker)) as reader,
    ):
        application.launch()
        for minute in range(3):
            click(minute, 1_000)
            until(lambda: reader.reads(expected), f"the counts of minute {minute}")
        assert policy_of(broker, CHANGELOG) == "compact,delete"
        log = broker.data_dir / f"{CHANGELOG}-0"
        until(lambda: list(log.glob("*.log.deleted")), "a compaction")
        assert application.stop() in STOPPED, application.output

        shutil.rmtree(application.state)
        assert broker.stop() == 0
        broker.serve()
        # More clicks in the last window: the counts continue from what the changelog has.
        click(2, 100)
        application.launch()
        until(lambda: reader.reads(expected), "the counts after the restoration")
        assert application.restored() >= len(expected)
        assert application.stop() in STOPPED
