"""The broker is killed under load repeatedly; acknowledged records are kept once, in order."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.processes.waiting import DEADLINE_S, until

ROUNDS = 8
PRODUCERS = 4
PARTITIONS = 2
IN_FLIGHT = 20
TOPIC = "events"


class NumberingProducer:
    """An idempotent producer that sends 0, 1, 2, ... on a thread and remembers what was acked.

    It never gives up on a message, so at its end all of them are acknowledged.
    """

    def __init__(self, bootstrap_servers: str, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.acked: list[int] = []
        """The offset of each number."""
        self.errors: list[str] = []
        self._sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "compression.codec": "lz4",
                "message.timeout.ms": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)

    def value(self, number: int) -> bytes:
        return f"{self.name} {number} ".encode().ljust(200, b".")

    def _run(self) -> None:
        while not self._stopping.is_set() and not self.errors:
            while self._sent - len(self.acked) < IN_FLIGHT:
                self._producer.produce(
                    TOPIC,
                    self.value(self._sent),
                    partition=self.partition,
                    on_delivery=self._delivered,
                )
                self._sent += 1
            self._producer.poll(0.1)
        if self._producer.flush(DEADLINE_S):
            self.errors.append("not everything was acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            self.errors.append(str(error))
        elif offset is None or message.value() != self.value(len(self.acked)):
            self.errors.append(f"acknowledged {message.value()!r} out of its turn")
        else:
            self.acked.append(offset)


class RememberingConsumer:
    """Reads one partition from its start on a thread and remembers what it saw."""

    def __init__(self, bootstrap_servers: str, partition: int) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        self._partition = partition
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            # An offset that is gone must be seen, and not be jumped over.
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with closing(Consumer(self._settings)) as consumer:
            consumer.assign([TopicPartition(TOPIC, self._partition, 0)])
            while not self._stopping.is_set():
                for message in consumer.consume(1_000, 0.1):
                    self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            self.seen.append((offset, value))
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self.errors.append(str(error))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve().make_topic(TOPIC, PARTITIONS, segment_bytes="100000")
        yield broker


def crash(broker: BrokerProcess, number: int) -> None:
    """Kill the broker; each third time once more, in the middle of its recovery."""
    broker.kill()
    if number % 3 == 2:
        broker.launch()
        broker.until_says("recovered ")
        broker.kill()
    broker.serve()


@pytest.mark.long
def test_acknowledged_records_survive_every_crash_once_and_in_order(
    broker: BrokerProcess,
) -> None:
    chance = random.Random(11)
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(RememberingConsumer(broker.bootstrap_servers, partition))
            for partition in range(PARTITIONS)
        ]
        with ExitStack() as load:
            producers = [
                load.enter_context(
                    NumberingProducer(broker.bootstrap_servers, f"producer-{n}", n % PARTITIONS)
                )
                for n in range(PRODUCERS)
            ]
            for number in range(ROUNDS):
                enough = chance.randint(20, 400)
                goals = {each: len(each.acked) + enough for each in producers}
                until(partial(are_reached, goals), "acknowledgements")
                crash(broker, number)
            # A busy machine sends less between two crashes.
            until(lambda: len(segments(broker)) > PARTITIONS, "a segment is full")
        assert [each.errors for each in producers] == [[]] * PRODUCERS
        totals = [
            sum(len(each.acked) for each in producers if each.partition == partition)
            for partition in range(PARTITIONS)
        ]
        reading = list(zip(consumers, totals, strict=True))
        until(
            lambda: all(each.errors or len(each.seen) >= total for each, total in reading),
            "all was consumed",
        )
    assert [each.errors for each in consumers] == [[]] * PARTITIONS

    for partition, total in enumerate(totals):
        log = read_all(broker, partition, total)
        # Exactly what was acknowledged, each number of each producer once, at its offset.
        assert log == {
            offset: each.value(number)
            for each in producers
            if each.partition == partition
            for number, offset in enumerate(each.acked)
        }
        assert list(log) == list(range(total))
        # Whatever a consumer ever saw is still what lies there.
        assert consumers[partition].seen == list(log.items())
    for each in producers:
        assert each.acked == sorted(each.acked)
    assert "Traceback" not in broker.output
    assert broker.stop() == 0
    check_files(broker)


def are_reached(goals: dict[NumberingProducer, int]) -> bool:
    """Whether each producer has as many acknowledgements, or cannot get any more."""
    return all(each.errors or len(each.acked) >= goal for each, goal in goals.items())


def read_all(broker: BrokerProcess, partition: int, total: int) -> dict[int, bytes]:
    consumer = RememberingConsumer(broker.bootstrap_servers, partition)
    with consumer:
        until(lambda: len(consumer.seen) >= total or consumer.errors, "all was read back")
    assert consumer.errors == []
    return dict(consumer.seen)


def segments(broker: BrokerProcess) -> list[Path]:
    return sorted(broker.data_dir.glob(f"{TOPIC}-*/*.log"))


def check_files(broker: BrokerProcess) -> None:
    """CRCs, offsets and indexes of every segment agree, by the word of `logbroker dump`."""
    for segment in segments(broker):
        checked = logbroker_command(broker.bootstrap_servers, "dump")(str(segment))
        assert checked.returncode == 0, checked.stdout[-2_000:] + checked.stderr
