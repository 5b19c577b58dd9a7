"""Consumers of a group, each a process of its own that can be killed, and what they deliver."""

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
    """What a consumer reads, and as a member of which group."""

    bootstrap_servers: str
    zookeeper: str
    group_id: str
    topic: str


class Delivery(NamedTuple):
    """A message came out of a consumer, at a time of the machine's monotonic clock."""

    member: int
    partition: int
    time_s: float


Consume = Callable[[Subscription], Iterator[int]]
"""Joins the group and gives the partition of each message as it is delivered, without end."""


@dataclass(frozen=True)
class Kafka:
    """A consumer by Kafka's protocol."""

    strategy: str
    heartbeat_s: float
    session_s: float

    def __call__(self, of: Subscription) -> Iterator[int]:
        """Consume; offsets are committed every five seconds, as by default."""
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
class Paper:
    """A consumer by the paper, with one stream."""

    session_s: float

    def __call__(self, of: Subscription) -> Iterator[int]:
        """Consume; offsets are committed every five seconds, as by default."""
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
    """The processes of one group; `note` must be called often, or they wait to be heard."""

    def __init__(self, processes: Sequence[BaseProcess], reports: Sequence[Connection]) -> None:
        self._processes = processes
        self._reports = dict(enumerate(reports))
        self.last: dict[int, Delivery] = {}
        """The newest delivery of each partition."""

    def note(self) -> list[Delivery]:
        """What was delivered since the last call, each member's in order."""
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
        """How many partitions each member delivered from last, the smallest share first."""
        return sorted(Counter(each.member for each in self.last.values()).values())

    def kill(self, member: int) -> None:
        """SIGKILL: it cannot tell anybody."""
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
    """So many consumers; all are killed at the end."""
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
