"""`logbroker` and Apache Kafka: one raw client for both, with batches encoded once."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks import kafka_server
from benchmarks.frames import (
    ACKS_ALL,
    ACKS_LEADER,
    ErrorResponse,
    FetchFrames,
    ProduceFrame,
    batch_of,
    encode_produce,
)
from benchmarks.maven_jars import JarsUnavailable
from benchmarks.peers.exchange import (
    Consumer,
    ErrorAnswer,
    Producer,
    Received,
    SizedFrames,
)
from benchmarks.peers.peer import Peer, PeerUnavailable, RunningPeer, connect
from benchmarks.running_broker import RunningBroker, running_broker, until
from benchmarks.zookeeper_server import free_port

FETCH_BYTES: Final = 200_000
"""As in the paper, whose consumers prefetch about 200 KB with each request."""


class ProduceResponses:
    """Counts Produce responses by their size, and checks one of each received piece."""

    def __init__(self, request: ProduceFrame) -> None:
        self._request = request
        self._bytes = 0

    def receive(self, data: bytes) -> Received:
        """Count the messages that complete responses acknowledge.

        Raises:
            ErrorAnswer: the broker rejected a batch.
        """
        size = self._request.response_bytes
        first_at = -self._bytes % size
        if first_at + size <= len(data):
            try:
                self._request.base_offset(memoryview(data)[first_at:])
            except ErrorResponse as error:
                raise ErrorAnswer(str(error)) from error
        before = self._bytes // size
        self._bytes += len(data)
        return Received((self._bytes // size - before) * self._request.records)


class FetchResponses:
    """Counts the messages of Fetch responses, and requests the next ones."""

    def __init__(self, frames: FetchFrames, batch_bytes: int, batch: int, messages: int) -> None:
        self._frames = frames
        self._responses = SizedFrames()
        self._batch_bytes = batch_bytes
        self._batch = batch
        self._messages = messages
        self._offset = 0

    def receive(self, data: bytes) -> Received:
        """Count the messages of a complete response, whose batches all have the same size.

        Raises:
            ErrorAnswer: the response has an error code, no records, or other ones.
        """
        before, request = self._offset, b""
        for response in self._responses.split(data):
            try:
                found = self._frames.find_records(response)
            except ErrorResponse as error:
                raise ErrorAnswer(str(error)) from error
            if found.first_offset(response) != self._offset:
                raise ErrorAnswer(f"requested {self._offset}, got {found.first_offset(response)}")
            self._offset += found.records_bytes // self._batch_bytes * self._batch
            if self._offset < self._messages:
                request = self._frames.encode_request(self._offset)
        return Received(self._offset - before, request)


class KafkaPeer(RunningPeer):
    """A broker with Kafka's protocol, topics with one partition, and fixed `acks`."""

    def __init__(
        self, broker: RunningBroker, version: str, acks: int, settings: Mapping[str, str]
    ) -> None:
        super().__init__(broker.process, broker.data_dir)
        self.version = version
        self.broker = broker
        self._acks = acks
        self._settings = settings

    def create_log(self, name: str) -> None:
        """Create a topic with one partition."""
        self.create_topic(name, 1)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, and wait until all partitions are served, which Kafka answers before."""
        self.broker.create_topic(name, partitions, self._settings)
        until(lambda: self._serves(name, partitions), f"{name} is served")

    def producer(self, name: str, batch: int) -> Producer:
        """Connect a producer whose batches are encoded once."""
        request = encode_produce(name, _batch(batch), batch, self._acks)
        return Producer(
            connect(self.broker.address[1]), request.frame, batch, ProduceResponses(request)
        )

    def consumer(self, name: str, batch: int, messages: int) -> Consumer:
        """Connect a consumer after all messages are visible, which is also checked."""
        self.broker.wait_for_end(name, messages)
        frames = FetchFrames(name, 0, FETCH_BYTES)
        answers = FetchResponses(frames, len(_batch(batch)), batch, messages)
        return Consumer(connect(self.broker.address[1]), frames.encode_request(0), answers)

    def _serves(self, name: str, partitions: int) -> bool:
        # A client that has once seen a partition without a leader would not look it up again.
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        wanted = {TopicPartition(name, each): OffsetSpec.latest() for each in range(partitions)}
        try:
            for offset in admin.list_offsets(wanted).values():
                offset.result()
        except KafkaException:
            return False
        return True


def kafka_jars() -> Path:
    """Return the folder of Apache Kafka's jars.

    Raises:
        PeerUnavailable: they cannot be fetched.
    """
    try:
        return kafka_server.kafka_jars()
    except JarsUnavailable as error:
        raise PeerUnavailable(str(error)) from error


def _batch(records: int) -> bytes:
    return batch_of(records, time.time_ns() // 1_000_000)


@contextmanager
def _logbroker(folder: Path, acks: int) -> Iterator[RunningPeer]:
    with running_broker(folder / "data", keeps_data=False) as broker:
        yield KafkaPeer(broker, version("rewind"), acks, {})


@contextmanager
def _apache_kafka(folder: Path, settings: Mapping[str, str]) -> Iterator[RunningPeer]:
    jars = kafka_jars()
    address = f"127.0.0.1:{free_port()}"
    home = folder / "kafka"
    with kafka_server.kafka_server(home, jars, {"PLAINTEXT": address}) as pid:
        broker = RunningBroker(address, pid, home / "data")
        yield KafkaPeer(broker, kafka_server.VERSION, ACKS_LEADER, settings)


LOGBROKER: Final = Peer(
    "logbroker",
    "logbroker, acks=1",
    batches=(1, 50),
    is_flushed=False,
    settings="defaults: flushed continuously; consumers see flushed messages only",
    run=partial(_logbroker, acks=ACKS_LEADER),
)
LOGBROKER_FLUSHED: Final = Peer(
    "logbroker-all",
    "logbroker, acks=all",
    batches=(1, 50),
    is_flushed=True,
    settings="defaults: a flush before the acknowledgement, of all waiting requests together",
    run=partial(_logbroker, acks=ACKS_ALL),
)
KAFKA: Final = Peer(
    "kafka",
    "Apache Kafka",
    batches=(1, 50),
    is_flushed=False,
    settings="KRaft, heap of 1 GB, G1; defaults: it leaves flushes to the kernel; acks=1",
    run=partial(_apache_kafka, settings={}),
)
KAFKA_FLUSHED: Final = Peer(
    "kafka-flush",
    "Apache Kafka, flush.messages=1",
    batches=(1, 50),
    is_flushed=True,
    settings="the same with flush.messages=1: a flush before each acknowledgement; acks=1",
    run=partial(_apache_kafka, settings={"flush.messages": "1"}),
)
