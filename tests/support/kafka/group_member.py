"""A program: a consumer group member of any stock library that records its actions.

`python -m tests.support.kafka.group_member OPTIONS`, in JSON: `library`, `bootstrap_servers`,
`group`, `topics` (or `pattern`), `notes`, and where wanted `assignor`, `session_timeout_ms`,
`instance_id`. What is assigned, given up and read is noted when it happens; SIGTERM has it leave
the group.

It commits what it has read before it gives a partition up.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import aiokafka
import kafka
from aiokafka.coordinator.assignors import range as aio_range
from aiokafka.coordinator.assignors import roundrobin as aio_roundrobin
from aiokafka.coordinator.assignors.sticky import sticky_assignor as aio_sticky
from confluent_kafka import Consumer, KafkaException
from kafka.coordinator.assignors import range as kafka_range
from kafka.coordinator.assignors import roundrobin as kafka_roundrobin
from kafka.coordinator.assignors.sticky import sticky_assignor as kafka_sticky

log = logging.getLogger("group_member")

POLL_MS = 100
BATCH = 20

# kafka-python drops a generation that is not complete when `poll` returns, at times for good: on a
# busy machine it needs longer than the others.
KAFKA_PYTHON_POLL_MS = 5_000

KAFKA_PYTHON_ASSIGNORS = {
    "range": kafka_range.RangePartitionAssignor,
    "roundrobin": kafka_roundrobin.RoundRobinPartitionAssignor,
    "sticky": kafka_sticky.StickyPartitionAssignor,
}
AIOKAFKA_ASSIGNORS = {
    "range": aio_range.RangePartitionAssignor,
    "roundrobin": aio_roundrobin.RoundRobinPartitionAssignor,
    "sticky": aio_sticky.StickyPartitionAssignor,
}


class Notes:
    """A file of JSON lines. Written lines survive SIGKILL."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "at_s": time.monotonic(), **fields})
        os.write(self._file, f"{line}\n".encode())

    def assigned(self, partitions: Iterable[Any]) -> None:
        self.add("assigned", partitions=_places(partitions))

    def given_up(self, partitions: Iterable[Any]) -> None:
        self.add("given up", partitions=_places(partitions))

    def read(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        self.add("read", place=[topic, partition], offset=offset, value=value.decode())


class Stopping:
    """Report whether SIGTERM was received."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


def run_confluent(options: dict[str, Any], notes: Notes, stopping: Stopping) -> None:
    settings = {
        "bootstrap.servers": options["bootstrap_servers"],
        "group.id": options["group"],
        "client.id": options["name"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": options["session_timeout_ms"],
        "partition.assignment.strategy": options["assignor"],
        "topic.metadata.refresh.interval.ms": 1_000,
        # By default, clients avoid a dead broker for seconds.
        "reconnect.backoff.max.ms": 500,
    }
    if options["instance_id"] is not None:
        settings["group.instance.id"] = options["instance_id"]
    consumer = Consumer(settings)

    def commit() -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            log.info("not committed: %s", error)

    def revoked(_: Consumer, partitions: list[Any]) -> None:
        notes.given_up(partitions)
        commit()

    consumer.subscribe(
        options["topics"],
        on_assign=lambda _, partitions: notes.assigned(partitions),
        on_revoke=revoked,
        on_lost=lambda _, partitions: notes.given_up(partitions),
    )
    count = 0
    while not stopping.is_set:
        message = consumer.poll(POLL_MS / 1000)
        if message is not None and message.error() is not None:
            log.info("error: %s", message.error())
            continue
        if message is not None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            value = message.value()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            assert value is not None
            notes.read(topic, partition, offset, value)
            consumer.store_offsets(message)
            count += 1
        if count and (message is None or count >= BATCH):
            commit()
            count = 0
    notes.add("closing")
    consumer.close()


class KafkaPythonListener(kafka.ConsumerRebalanceListener):
    """Called in `poll`, after everything is committed."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._notes.given_up(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._notes.assigned(assigned)


def _commit_kafka_python(consumer: kafka.KafkaConsumer) -> None:
    try:
        consumer.commit()
    except kafka.errors.KafkaError as error:
        log.info("not committed: %r", error)


def run_kafka_python(options: dict[str, Any], notes: Notes, stopping: Stopping) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=options["bootstrap_servers"].split(","),
        group_id=options["group"],
        client_id=options["name"],
        group_instance_id=options["instance_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=500,
        session_timeout_ms=options["session_timeout_ms"],
        metadata_max_age_ms=1_000,
        partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[options["assignor"]]],
    )
    listener = KafkaPythonListener(notes)
    if options["pattern"] is None:
        # A leader that does not know the topics yet assigns no partitions, without an error.
        for topic in options["topics"]:
            consumer.partitions_for_topic(topic)
        consumer.subscribe(topics=options["topics"], listener=listener)
    else:
        consumer.subscribe(pattern=options["pattern"], listener=listener)
    while not stopping.is_set:
        for records in consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS, max_records=BATCH).values():
            for each in records:
                notes.read(each.topic, each.partition, each.offset, each.value)
        _commit_kafka_python(consumer)
    notes.add("closing")
    consumer.close()


class AiokafkaListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def __init__(self, consumer: aiokafka.AIOKafkaConsumer, notes: Notes) -> None:
        self._consumer = consumer
        self._notes = notes

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._notes.given_up(revoked)
        if revoked:
            await _commit_aiokafka(self._consumer)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._notes.assigned(assigned)


async def _commit_aiokafka(consumer: aiokafka.AIOKafkaConsumer) -> None:
    try:
        await consumer.commit()
    except aiokafka.errors.KafkaError as error:
        log.info("not committed: %r", error)


def run_aiokafka(options: dict[str, Any], notes: Notes, stopping: Stopping) -> None:
    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap_servers"],
            group_id=options["group"],
            client_id=options["name"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=options["session_timeout_ms"],
            metadata_max_age_ms=1_000,
            group_instance_id=options["instance_id"],
            partition_assignment_strategy=[AIOKAFKA_ASSIGNORS[options["assignor"]]],
        )
        listener = AiokafkaListener(consumer, notes)
        await consumer.start()
        consumer.subscribe(options["topics"], listener=listener)
        while not stopping.is_set:
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
            for records in found.values():
                for each in records:
                    notes.read(each.topic, each.partition, each.offset, each.value)
            if found:
                await _commit_aiokafka(consumer)
        notes.add("closing")
        await consumer.stop()

    asyncio.run(run())


RUN: dict[str, Callable[[dict[str, Any], Notes, Stopping], None]] = {
    "confluent-kafka": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def _places(partitions: Iterable[Any]) -> list[tuple[str, int]]:
    return sorted((each.topic, each.partition) for each in partitions)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    options = json.loads(sys.argv[1])
    stopping = Stopping()
    RUN[options["library"]](options, Notes(options["notes"]), stopping)


if __name__ == "__main__":
    main()
