"""Compaction in a running broker: what stock clients read, also after the broker was killed."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S, until

OPTIONS = ("--cleaner-backoff-s", "0.05", "--file-delete-delay-s", "0")
SEGMENT_BYTES = 16_384
KEYS = 20
RECORDS = 2_000
SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": str(SEGMENT_BYTES),
    "min_cleanable_dirty_ratio": "0.01",
}

Values = dict[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log", *OPTIONS) as broker:
        yield broker.serve()


@pytest.fixture(scope="module")
def compacted(broker: BrokerProcess) -> Values:
    """The topic `compacted` after a compaction: the last value of each key."""
    broker.make_topic("compacted", 1, **SETTINGS)
    last = publish(broker, "compacted", RECORDS)
    until(lambda: first_segment_bytes(broker, "compacted") < SEGMENT_BYTES / 4, "a compaction")
    return last


def publish(broker: BrokerProcess, topic: str, count: int, start: int = 0) -> Values:
    """Send records one by one in small batches, and return the last value of each key."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "batch.num.messages": 5,
            "compression.type": "lz4",
            "enable.idempotence": True,
        }
    )
    last: Values = {}
    for number in range(start, start + count):
        key, value = b"key-%d" % (number % KEYS), b"value %d " % number + b"." * 100
        if number % KEYS == 7:
            producer.produce(topic, key=key, value=None)
            last[key] = None
        else:
            producer.produce(topic, key=key, value=value)
            last[key] = value
    assert producer.flush(DEADLINE_S) == 0
    return last


def first_segment_bytes(broker: BrokerProcess, topic: str) -> int:
    try:
        return (broker.data_dir / f"{topic}-0" / "00000000000000000000.log").stat().st_size
    except FileNotFoundError:  # it is being replaced
        return SEGMENT_BYTES


def read_with_librdkafka(broker: BrokerProcess, topic: str) -> tuple[Values, list[int]]:
    """The last value of each key, and all offsets, up to the end of the log."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "unused",
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    last: Values = {}
    offsets: list[int] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return last, offsets
            offsets.append(message.offset() or 0)
            last[message.key()] = message.value()


def test_librdkafka_reads_the_last_value_of_each_key(
    broker: BrokerProcess, compacted: Values
) -> None:
    last, offsets = read_with_librdkafka(broker, "compacted")
    assert last == compacted
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == RECORDS - 1
    assert len(offsets) < RECORDS / 2


def test_kafka_python_reads_the_last_value_of_each_key(
    broker: BrokerProcess, compacted: Values
) -> None:
    place = PythonPartition("compacted", 0)
    last: Values = {}
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        until(lambda: poll_all(consumer, last) or consumer.position(place) == RECORDS, "the end")
    assert last == compacted


def poll_all(consumer: KafkaConsumer, last: Values) -> bool:
    for records in consumer.poll(1_000).values():
        last.update((record.key, record.value) for record in records)
    return False


def test_aiokafka_reads_the_last_value_of_each_key(
    broker: BrokerProcess, compacted: Values
) -> None:
    async def read() -> Values:
        place = aiokafka.TopicPartition("compacted", 0)
        last: Values = {}
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        await consumer.start()
        try:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            while await consumer.position(place) < RECORDS:
                for records in (await consumer.getmany(place, timeout_ms=1_000)).values():
                    last.update((record.key, record.value) for record in records)
        finally:
            await consumer.stop()
        return last

    assert asyncio.run(read()) == compacted


def test_a_record_without_a_key_is_rejected(broker: BrokerProcess, compacted: Values) -> None:
    assert compacted
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("compacted", b"no key", callback=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert [error and error.code() for error in failures] == [KafkaError.INVALID_RECORD]


def test_impossible_policies_are_rejected(broker: BrokerProcess) -> None:
    with pytest.raises(KafkaException, match=r"cleanup\.policy is 'shred'; allowed is delete"):
        broker.make_topic("never", cleanup_policy="shred")


def test_a_broker_killed_in_compactions_keeps_the_last_values(tmp_path: Path) -> None:
    options = ("--cleaner-backoff-s", "0.05", "--file-delete-delay-s", "3600")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        # Each round fills several segments.
        broker.serve().make_topic("t", 1, **{**SETTINGS, "segment_bytes": "4096"})
        last: Values = {}
        for number in range(4):
            seen = replaced_segments(broker, "t")
            last |= publish(broker, "t", 500, start=500 * number)
            # One segment is replaced, and the next one is being written or replaced.
            until(partial(has_replaced, broker, "t", seen), "a replacement")
            broker.kill()
            broker.serve()
            found, offsets = read_with_librdkafka(broker, "t")
            assert found == last
            assert offsets[-1] == 500 * (number + 1) - 1
        assert broker.stop() == 0


def has_replaced(broker: BrokerProcess, topic: str, seen: set[str]) -> bool:
    return bool(replaced_segments(broker, topic) - seen)


def replaced_segments(broker: BrokerProcess, topic: str) -> set[str]:
    folder = broker.data_dir / f"{topic}-0"
    return {path.name for path in folder.glob("*.log.deleted")}
