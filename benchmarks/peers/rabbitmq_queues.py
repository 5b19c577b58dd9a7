"""RabbitMQ's classic and quorum queues over AMQP 0-9-1, with persistent messages and confirms."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.frames import MESSAGE
from benchmarks.peers import amqp
from benchmarks.peers.exchange import Consumer, Producer
from benchmarks.peers.peer import Peer, RunningPeer, connect
from benchmarks.peers.rabbitmq_server import PASSWORD, USER, RabbitServer, rabbit_server


class _Queues(RunningPeer):
    def __init__(self, server: RabbitServer, kind: str) -> None:
        super().__init__(server.process, server.data_dir)
        self.version = server.version
        self._port = server.amqp_port
        self._kind = kind

    def create_log(self, name: str) -> None:
        with connect(self._port) as sock:
            amqp.Channel(sock, USER, PASSWORD).declare(name, {"x-queue-type": self._kind})

    def producer(self, name: str, batch: int) -> Producer:
        assert batch == 1, "AMQP 0-9-1 has no request with several messages"
        channel = amqp.Channel(connect(self._port), USER, PASSWORD)
        return Producer(channel.sock, amqp.publish(name, MESSAGE), batch, amqp.Confirms())

    def consumer(self, name: str, batch: int, messages: int) -> Consumer:  # noqa: ARG002
        channel = amqp.Channel(connect(self._port), USER, PASSWORD)
        return Consumer(channel.sock, amqp.consume(name), amqp.Deliveries())


@contextmanager
def _queues(folder: Path, kind: str) -> Iterator[RunningPeer]:
    with rabbit_server(folder) as server:
        yield _Queues(server, kind)


CLASSIC: Final = Peer(
    "rabbitmq-classic",
    "RabbitMQ, classic queue",
    batches=(1,),
    is_flushed=True,
    settings="durable queue, persistent messages, publisher confirms; consumer without acks",
    run=partial(_queues, kind="classic"),
)
QUORUM: Final = Peer(
    "rabbitmq-quorum",
    "RabbitMQ, quorum queue",
    batches=(1,),
    is_flushed=True,
    settings="a quorum of one, persistent messages, publisher confirms; consumer without acks",
    run=partial(_queues, kind="quorum"),
)
