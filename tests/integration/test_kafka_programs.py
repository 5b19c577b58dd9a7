"""Programs of Apache Kafka that keep their state in compacted topics, on this broker."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.support.kafka.apache_kafka import (
    TEST_TIMEOUT_S,
    KafkaServer,
    java_command,
    require_connect,
)
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.kafka_commands import KafkaCommands
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.xdist_group("apache_kafka"),
]

OPTIONS = (
    *("--cleaner-backoff-s", "0.1"),
    *("--group-initial-rebalance-delay-ms", "0"),
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "log", *OPTIONS) as broker:
        yield broker.serve()


def policy_of(broker: BrokerProcess, topic: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    settings = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    value: str | None = settings["cleanup.policy"].value
    return value


# --- kafka-dump-log ---


def test_kafkas_dump_reads_a_compacted_log(
    broker: BrokerProcess, kafka_commands: KafkaCommands
) -> None:
    settings = {
        "cleanup_policy": "compact",
        "segment_bytes": "16384",
        "min_cleanable_dirty_ratio": "0.01",
    }
    broker.make_topic("t", 1, **settings)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 5})
    producer.produce("t", None, b"gone")
    for number in range(1_000):
        value = None if number % 50 == 7 else b"%d" % number + b"." * 100
        producer.produce("t", value, b"key-%d" % (number % 50))
    assert producer.flush(DEADLINE_S) == 0
    until(lambda: list((broker.data_dir / "t-0").glob("*.log.deleted")), "a compaction")
    assert broker.stop() == 0

    files = [str(path) for path in sorted(broker.data_dir.glob("t-0/*.*")) if is_dumped(path)]
    dumped = dump(
        kafka_commands, "--deep-iteration", "--print-data-log", "--files", ",".join(files)
    )
    keys = {line.partition(" payload: ")[0].split()[-1] for line in dumped if " payload: " in line}
    # Without a payload, the line of a tombstone has another form.
    assert keys == {f"key-{number}" for number in range(50) if number != 7}
    assert any("deleteHorizonMs: OptionalLong[" in line for line in dumped)
    indexes = [name for name in files if not name.endswith(".log") and Path(name).stat().st_size]
    checked = dump(kafka_commands, "--index-sanity-check", "--files", ",".join(indexes))
    assert sum("passed sanity check" in line for line in checked) == len(indexes)


def is_dumped(path: Path) -> bool:
    return path.suffix in {".log", ".index", ".timeindex"}


def dump(commands: KafkaCommands, *options: str) -> list[str]:
    done = commands.run("kafka-dump-log.sh", *options)
    assert done.code == 0, done.output
    assert "Found" not in done.output, "an index does not agree with its segment"
    return done.output.splitlines()


# --- Kafka Connect ---


class JavaProcess(ServerProcess):
    """A program in Java."""

    def __init__(self, command: list[str], output: Path) -> None:
        super().__init__([], output)
        self._command = command


class ConnectWorker(JavaProcess):
    """A distributed worker of Kafka Connect, with its HTTP interface."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self._port = free_port()
        folder.mkdir()
        properties = folder / "worker.properties"
        storages = {
            f"{kind}.storage.{name}": value
            for kind in ("config", "offset", "status")
            for name, value in (("topic", f"connect-{kind}"), ("replication.factor", 1))
        }
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": 200,
            "offset.storage.partitions": 2,
            "status.storage.partitions": 1,
            "listeners": f"http://127.0.0.1:{self._port}",
            **storages,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = [*java_command(require_connect(), folder, main_class), str(properties)]
        super().__init__(command, folder / "worker.log")

    def serve(self) -> None:
        self.launch()
        until(self._answers, "the worker answers")

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        assert self.exit_code is None, self.output[-4_000:]
        try:
            self.ask("/connectors")
        except OSError:
            return False
        return True


def connector(kind: str, file: Path, **settings: str) -> dict[str, Any]:
    config = {"connector.class": f"FileStream{kind}", "tasks.max": "1", "file": str(file)}
    return {"name": kind.lower(), "config": config | settings}


def test_kafka_connect_continues_after_a_restart(broker: BrokerProcess, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line {number}\n" for number in range(200)]
    source.write_text("".join(lines[:100]))
    with ConnectWorker(tmp_path / "connect", broker.bootstrap_servers) as worker:
        worker.serve()
        worker.ask("/connectors", connector("Source", source, topic="lines"))
        worker.ask("/connectors", connector("Sink", sink, topics="lines"))
        until(lambda: sink.exists() and len(sink.read_text()) == sum(map(len, lines[:100])), "100")
        worker.stop()
        assert broker.stop() == 0
        broker.serve()
        with source.open("a") as file:
            file.write("".join(lines[100:]))
        worker.serve()
        assert sorted(worker.ask("/connectors")) == ["sink", "source"]
        until(lambda: len(sink.read_text()) >= sum(map(len, lines)), "200 lines")
    assert sink.read_text() == "".join(lines)
    topics = ["connect-config", "connect-offset", "connect-status"]
    assert [policy_of(broker, topic) for topic in topics] == ["compact"] * 3


# --- MirrorMaker 2 ---


def test_mirrormaker_copies_a_topic_from_kafka(
    apache_kafka: KafkaServer, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = "mirrored-by-mirrormaker"
    producer = Producer({"bootstrap.servers": apache_kafka.bootstrap_servers})
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap_servers})
    new = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact", "retention.ms": "1000000"})
    admin.create_topics([new])[topic].result(DEADLINE_S)
    for number in range(100):
        producer.produce(topic, b"%d" % number, b"key-%d" % number)
    assert producer.flush(DEADLINE_S) == 0

    properties = tmp_path / "mirror.properties"
    settings = {
        "clusters": "kafka, logbroker",
        "kafka.bootstrap.servers": apache_kafka.bootstrap_servers,
        "logbroker.bootstrap.servers": broker.bootstrap_servers,
        "kafka->logbroker.enabled": "true",
        "kafka->logbroker.topics": topic,
        "logbroker->kafka.enabled": "false",
        "replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "config.storage.replication.factor": 1,
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
    command = [*java_command(require_connect(), tmp_path, main_class), str(properties)]
    with JavaProcess(command, tmp_path / "mirror.log") as mirror:
        mirror.launch()
        copied = read_topic(broker, f"kafka.{topic}", 100)
    assert copied == {b"key-%d" % number: b"%d" % number for number in range(100)}
    assert policy_of(broker, f"kafka.{topic}") == "compact"


def read_topic(broker: BrokerProcess, topic: str, count: int) -> dict[bytes | None, bytes | None]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "reader",
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    found: dict[bytes | None, bytes | None] = {}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])

    def has_all() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found[message.key()] = message.value()
        return len(found) == count

    until(has_all, f"{count} records of {topic}")
    consumer.close()
    return found
