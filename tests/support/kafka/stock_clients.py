"""Stock clients behind one interface.

Records go to partition 0, offsets are plain numbers, and nothing is translated on the way that
the client itself does not translate.
"""

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import kafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin
from kafka.admin import KafkaAdminClient

from tests.support.processes.server_process import require_program
from tests.support.processes.waiting import DEADLINE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Result = TypeVar("Result")


class SentRecord(NamedTuple):
    """A record to produce and to consume."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class ReadRecord(NamedTuple):
    """A consumed record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def as_sent(self) -> SentRecord:
        return SentRecord(*self[1:])


def sample_records(count: int, start_ms: int) -> list[SentRecord]:
    """Return records ten milliseconds apart with unusual keys, values and headers.

    None has neither key nor value: kafka-python and aiokafka refuse to send such a one. They
    compress well: librdkafka sends a batch as it is when compression would not make it smaller.
    """
    value = b"value %d \xff\0" + 50 * b"."
    return [
        SentRecord(
            start_ms + 10 * number,
            None if number % 5 == 0 else b"key-%d" % (number % 7),
            None if number % 10 == 3 else b"" if number % 10 == 4 else value % number,
            (("trace", b"%d" % number), ("trace", b"again"), ("s\u00e4", b""))[: number % 4],
        )
        for number in range(count)
    ]


class StockClient(Protocol):
    """A client library or program with one broker."""

    def create_topic(self, topic: str) -> None: ...

    def produce(
        self, topic: str, records: Sequence[SentRecord], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        """Send with acks=all and return the offset of each record."""

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None: ...

    def read(self, topic: str, start: int, count: int) -> list[ReadRecord]:
        """`count` records of partition 0 from offset `start` on."""


class ConfluentClient:
    """librdkafka of today, by confluent-kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap_servers}

    def create_topic(self, topic: str) -> None:
        admin = confluent_admin.AdminClient({**self._bootstrap})
        new = confluent_admin.NewTopic(topic, num_partitions=1, replication_factor=1)
        admin.create_topics([new])[topic].result(DEADLINE_S)

    def produce(
        self, topic: str, records: Sequence[SentRecord], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        producer = Producer(
            self._bootstrap
            | {
                "acks": "all",
                "enable.idempotence": is_idempotent,
                "compression.codec": codec,
                "linger.ms": 50,
            }
        )
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                0,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        assert producer.flush(DEADLINE_S) == 0
        return offsets

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        with self._consumer() as consumer:
            asked = [TopicPartition(topic, 0, timestamp_ms)]
            (found,) = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
        assert found.error is None
        return found.offset if found.offset >= 0 else None

    def read(self, topic: str, start: int, count: int) -> list[ReadRecord]:
        found: list[ReadRecord] = []
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, 0, start)])
            end_s = time.monotonic() + DEADLINE_S
            while len(found) < count and time.monotonic() < end_s:
                for message in consumer.consume(count - len(found), 0.2):
                    assert message.error() is None
                    offset = message.offset()
                    headers: Any = message.headers() or ()
                    assert offset is not None
                    found.append(
                        ReadRecord(
                            offset,
                            message.timestamp()[1],
                            message.key(),
                            message.value(),
                            tuple(headers),
                        )
                    )
        return found

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        # librdkafka asks for a group's name even of those who only assign.
        settings = {"group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
        with closing(Consumer(self._bootstrap | settings)) as consumer:
            yield consumer


class KafkaPythonClient:
    """kafka-python, in pure Python."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def create_topic(self, topic: str) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=self._bootstrap_servers)) as admin:
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})

    def produce(
        self, topic: str, records: Sequence[SentRecord], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        with closing(
            kafka.KafkaProducer(
                bootstrap_servers=self._bootstrap_servers,
                acks="all",
                enable_idempotence=is_idempotent,
                compression_type=None if codec == "none" else codec,
                linger_ms=50,
            )
        ) as producer:
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(DEADLINE_S).offset for future in sent]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        partition = kafka.TopicPartition(topic, 0)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
        return None if found is None else int(found.offset)

    def read(self, topic: str, start: int, count: int) -> list[ReadRecord]:
        partition = kafka.TopicPartition(topic, 0)
        found: list[ReadRecord] = []
        with self._consumer() as consumer:
            consumer.assign([partition])
            consumer.seek(partition, start)
            end_s = time.monotonic() + DEADLINE_S
            while len(found) < count and time.monotonic() < end_s:
                polled = consumer.poll(timeout_ms=200, max_records=count - len(found))
                found += map(_as_read, polled.get(partition, ()))
        return found

    @contextmanager
    def _consumer(self) -> Iterator[kafka.KafkaConsumer]:
        with closing(
            kafka.KafkaConsumer(
                bootstrap_servers=self._bootstrap_servers,
                group_id=None,
                enable_auto_commit=False,
                check_crcs=True,
            )
        ) as consumer:
            yield consumer


class AiokafkaClient:
    """aiokafka, which asks in the oldest versions of all."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def create_topic(self, topic: str) -> None:
        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
            await admin.start()
            try:
                answer = await admin.create_topics([NewTopic(topic, 1, 1)])
                assert [error[1] for error in answer.topic_errors] == [0]
            finally:
                await admin.close()

        asyncio.run(create())

    def produce(
        self, topic: str, records: Sequence[SentRecord], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        async def produce() -> list[int]:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap_servers,
                acks="all",
                enable_idempotence=is_idempotent,
                compression_type=None if codec == "none" else codec,
                linger_ms=50,
            ) as producer:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                return [(await future).offset for future in sent]

        return asyncio.run(produce())

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        partition = aiokafka.TopicPartition(topic, 0)

        async def find_offset(consumer: aiokafka.AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
            return None if found is None else int(found.offset)

        return self._with_consumer(find_offset)

    def read(self, topic: str, start: int, count: int) -> list[ReadRecord]:
        partition = aiokafka.TopicPartition(topic, 0)

        async def read(consumer: aiokafka.AIOKafkaConsumer) -> list[ReadRecord]:
            consumer.assign([partition])
            consumer.seek(partition, start)
            found: list[ReadRecord] = []
            while len(found) < count:
                async with asyncio.timeout(DEADLINE_S):
                    found.append(_as_read(await consumer.getone(partition)))
            return found

        return self._with_consumer(read)

    def _with_consumer(
        self, use: Callable[[aiokafka.AIOKafkaConsumer], Awaitable[Result]]
    ) -> Result:
        async def run() -> Result:
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap_servers, enable_auto_commit=False, check_crcs=True
            ) as consumer:
                return await use(consumer)

        return asyncio.run(run())


class KcatClient:
    """Debian's kcat with an old librdkafka. It sends only text with its own timestamps."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._program = require_program("kcat", "kcat")
        self._bootstrap_servers = bootstrap_servers

    def run(self, *arguments: str, given: str = "") -> str:
        """Run kcat and return its standard output."""
        done = subprocess.run(
            [self._program, "-b", self._bootstrap_servers, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def produce_lines(
        self,
        topic: str,
        lines: Sequence[str],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        headers: Sequence[str] = (),
    ) -> None:
        """Send `key:value` lines with the same `name=value` headers."""
        settings = [f"enable.idempotence={str(is_idempotent).lower()}", "acks=all", "linger.ms=50"]
        self.run(
            *("-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec),
            *(part for setting in settings for part in ("-X", setting)),
            *(part for header in headers for part in ("-H", header)),
            given="".join(f"{line}\n" for line in lines),
        )

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        printed = self.run("-Q", "-t", f"{topic}:0:{timestamp_ms}")
        offset = int(printed.split()[-1])
        return offset if offset >= 0 else None

    def read(self, topic: str, start: int, count: int) -> list[ReadRecord]:
        printed = self.run(
            *("-C", "-t", topic, "-p", "0", "-o", str(start), "-c", str(count), "-e", "-q", "-J"),
            *("-X", "check.crcs=true"),
        )
        return [_of_kcat(json.loads(line)) for line in printed.splitlines()]


def _as_read(record: Any) -> ReadRecord:
    headers = tuple((name, value) for name, value in record.headers)
    return ReadRecord(record.offset, record.timestamp, record.key, record.value, headers)


def _of_kcat(envelope: dict[str, Any]) -> ReadRecord:
    flat = envelope.get("headers", [])
    return ReadRecord(
        envelope["offset"],
        envelope["ts"],
        _bytes(envelope["key"]),
        _bytes(envelope["payload"]),
        tuple((name, value.encode()) for name, value in zip(flat[::2], flat[1::2], strict=True)),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


LIBRARIES: dict[str, Callable[[str], StockClient]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
}
