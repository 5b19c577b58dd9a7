"""Consumers of a group, each in a separate process that can be killed, and their deliveries."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, NamedTuple

from confluent_kafka import Consumer

from logbroker.consumer import ConsumerConnector

POLL_S: Final = 0.1


class Subscription(NamedTuple):
    """The topic and the group of a consumer."""

    bootstrap_servers: str
    zookeeper: str
    group_id: str
    topic: str


class Delivery(NamedTuple):
    """One message that a consumer delivered; the time is of the machine's monotonic clock."""

    member: int
    partition: int
    time_s: float


Consume = Callable[[Subscription], Iterator[int]]
"""Joins the group and yields the partition of each delivered message, without end."""


@dataclass(frozen=True)
class KafkaMember:
    """A consumer that uses Kafka's group protocol."""

    strategy: str
    heartbeat_s: float
    session_s: float

    def __call__(self, of: Subscription) -> Iterator[int]:
        """Consume; offsets are committed every five seconds, the default."""
        settings = {
            "bootstrap.servers": of.bootstrap_servers,
            "group.id": of.group_id,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": self.strategy,
            "heartbeat.interval.ms": int(self.heartbeat_s * 1e3),
            "session.timeout.ms": int(self.session_s * 1e3),
            "log_level": 0,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([of.topic])
            while True:
                message = consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    partition = message.partition()
                    assert partition is not None
                    yield partition


@dataclass(frozen=True)
class PaperMember:
    """The paper's consumer, with one stream."""

    session_s: float

    def __call__(self, of: Subscription) -> Iterator[int]:
        """Consume; offsets are committed every five seconds, the default."""
        with ConsumerConnector(
            of.zookeeper,
            of.group_id,
            of.bootstrap_servers,
            auto_offset_reset="smallest",
            session_timeout_s=self.session_s,
        ) as connector:
            ((stream,),) = connector.create_message_streams({of.topic: 1}).values()
            for message in stream:
                yield message.partition


class Members:
    """The processes of one group; `poll` must be called often, or their pipes fill up."""

    def __init__(self, processes: Sequence[BaseProcess], reports: Sequence[Connection]) -> None:
        self._processes = processes
        self._reports = dict(enumerate(reports))
        self.last: dict[int, Delivery] = {}
        """The newest delivery of each partition."""

    def poll(self) -> list[Delivery]:
        """Return the deliveries since the last call, in order for each member."""
        found = [
            Delivery(member, partition, time_s)
            for member, report in list(self._reports.items())
            for partition, time_s in self._received(member, report)
        ]
        for delivery in found:
            before = self.last.get(delivery.partition)
            if before is None or before.time_s <= delivery.time_s:
                self.last[delivery.partition] = delivery
        return found

    def shares(self) -> list[int]:
        """Return the number of partitions of each member, in ascending order."""
        return sorted(Counter(each.member for each in self.last.values()).values())

    def kill(self, member: int) -> None:
        """Kill a member with SIGKILL, so that it cannot leave the group."""
        self._processes[member].kill()
        self._processes[member].join()

    def _received(self, member: int, report: Connection) -> Iterator[tuple[int, float]]:
        try:
            while report.poll():
                yield report.recv()
        except (EOFError, ConnectionResetError):
            del self._reports[member]


@contextmanager
def group_members(count: int, consume: Consume, of: Subscription) -> Iterator[Members]:
    """Run `count` consumers until the end of the block, then kill them."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe(duplex=False) for _ in range(count)]
    processes = [
        spawn.Process(target=_report, args=(sending, consume, of), daemon=True)
        for _, sending in pipes
    ]
    for process, (_, sending) in zip(processes, pipes, strict=True):
        process.start()
        sending.close()
    try:
        yield Members(processes, [receiving for receiving, _ in pipes])
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for receiving, _ in pipes:
            receiving.close()


def _report(report: Connection, consume: Consume, of: Subscription) -> None:
    for partition in consume(of):
        report.send((partition, time.monotonic()))
