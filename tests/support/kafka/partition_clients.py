"""Stock clients for topics whose partitions are on several brokers."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import aiokafka
import kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.processes.waiting import DEADLINE_S

Values = dict[int, list[bytes]]
"""The values of each partition, in order."""


class ConfluentPartitions:
    """confluent-kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap_servers}

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        """Send with acks=all and wait for all acknowledgements."""
        producer = Producer(self._bootstrap | {"acks": "all"})
        errors: list[Any] = []
        for partition, each in values.items():
            for value in each:
                producer.produce(
                    topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, _: errors.append(error),
                )
        assert producer.flush(DEADLINE_S) == 0
        assert not any(errors), errors

    def read(self, topic: str, counts: Mapping[int, int]) -> Values:
        """Return the first values of each partition."""
        found: Values = {partition: [] for partition in counts}
        settings = {"group.id": "unused", "enable.auto.commit": False}
        with closing(Consumer(self._bootstrap | settings)) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in counts])
            end_s = time.monotonic() + DEADLINE_S
            while _lacks(found, counts) and time.monotonic() < end_s:
                for message in consumer.consume(100, 0.2):
                    partition, value = message.partition(), message.value()
                    if message.error() is None:
                        assert partition is not None
                        assert value is not None
                        found[partition].append(value)
        return found

    def read_to_end(self, topic: str, partition: int) -> list[bytes]:
        """Return all current values of a partition."""
        settings = {"group.id": "unused", "enable.auto.commit": False}
        with closing(Consumer(self._bootstrap | settings)) as consumer:
            place = TopicPartition(topic, partition)
            _, end = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
        return self.read(topic, {partition: end})[partition]


class KafkaPythonPartitions:
    """kafka-python."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = bootstrap_servers.split(",")

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        with closing(
            kafka.KafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        ) as producer:
            sent = [
                producer.send(topic, value, partition=partition)
                for partition, each in values.items()
                for value in each
            ]
            for future in sent:
                future.get(DEADLINE_S)

    def read(self, topic: str, counts: Mapping[int, int]) -> Values:
        found: Values = {partition: [] for partition in counts}
        places = [kafka.TopicPartition(topic, partition) for partition in counts]
        with closing(
            kafka.KafkaConsumer(
                bootstrap_servers=self._bootstrap, group_id=None, enable_auto_commit=False
            )
        ) as consumer:
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            end_s = time.monotonic() + DEADLINE_S
            while _lacks(found, counts) and time.monotonic() < end_s:
                for place, records in consumer.poll(timeout_ms=200).items():
                    found[place.partition] += [record.value for record in records]
        return found


class AiokafkaPartitions:
    """aiokafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        async def produce() -> None:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap_servers, acks="all"
            ) as producer:
                sent = [
                    await producer.send(topic, value, partition=partition)
                    for partition, each in values.items()
                    for value in each
                ]
                async with asyncio.timeout(DEADLINE_S):
                    await asyncio.gather(*sent)

        asyncio.run(produce())

    def read(self, topic: str, counts: Mapping[int, int]) -> Values:
        found: Values = {partition: [] for partition in counts}
        places = [aiokafka.TopicPartition(topic, partition) for partition in counts]

        async def read() -> None:
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap_servers, enable_auto_commit=False
            ) as consumer:
                consumer.assign(places)
                await consumer.seek_to_beginning(*places)
                async with asyncio.timeout(DEADLINE_S):
                    while _lacks(found, counts):
                        polled = await consumer.getmany(timeout_ms=200)
                        for place, records in polled.items():
                            found[place.partition] += [record.value for record in records]

        asyncio.run(read())
        return found


def _lacks(found: Values, counts: Mapping[int, int]) -> bool:
    return any(len(found[partition]) < count for partition, count in counts.items())


PartitionClient = ConfluentPartitions | KafkaPythonPartitions | AiokafkaPartitions

PARTITION_CLIENTS: dict[str, Callable[[str], PartitionClient]] = {
    "confluent-kafka": ConfluentPartitions,
    "kafka-python": KafkaPythonPartitions,
    "aiokafka": AiokafkaPartitions,
}
