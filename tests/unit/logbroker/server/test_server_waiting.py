"""Delayed requests of closed connections are removed at once."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from logbroker.config import BrokerConfig, LogConfig
from logbroker.server.broker import Broker
from logbroker.server.connection import Connection
from tests.support.kafka.raw_connection import ACKS_ALL, RawConnection, batch_of, produce_request
from tests.support.processes.waiting import until

DAY_MS = 86_400_000
CLIENTS = 20


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker in this process, on a thread, that flushes once a day."""
    defaults = LogConfig(flush_ms=DAY_MS)
    config = BrokerConfig(
        tmp_path / "log", port=0, topic_defaults=defaults, auto_create_topics=True
    )
    broker = Broker(config)
    thread = threading.Thread(target=broker.run)
    thread.start()
    address = f"127.0.0.1:{broker.port}"
    with RawConnection(address) as connection:
        make_topic(connection, "events")
    # What is there already is not searched by `connections`: all modules of the tests.
    gc.freeze()
    yield address
    gc.unfreeze()
    broker.stop()
    thread.join()


def make_topic(connection: RawConnection, topic: str) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    connection.ask(request, MetadataResponse, 4)


def connections() -> int:
    gc.collect()
    return sum(isinstance(found, Connection) for found in gc.get_objects())


def test_a_delayed_fetch_of_a_closed_connection_is_removed(address: str) -> None:
    clients = [RawConnection(address) for _ in range(CLIENTS)]
    for client in clients:
        client.fetch("events", 0, max_wait_ms=DAY_MS)
    leave(clients)


def test_a_delayed_produce_of_a_closed_connection_is_removed(address: str) -> None:
    request = produce_request("events", batch_of(b"one"), acks=ACKS_ALL, timeout_ms=DAY_MS)
    clients = [RawConnection(address) for _ in range(CLIENTS)]
    for client in clients:
        client.send(request, 9)
    leave(clients)


def leave(clients: list[RawConnection]) -> None:
    until(lambda: connections() == len(clients), "all are known")
    for client in clients:
        client.socket.close()
    until(lambda: connections() == 0, "no connection is left")
