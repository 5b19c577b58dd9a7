"""librdkafka's own broker: a foreign one, in this process, that knows no controller."""

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from app.log import lookup_client
from tests.support.processes.waiting import DEADLINE_S


@pytest.fixture
def foreign_broker() -> Iterator[str]:
    """HOST:PORT of a broker that creates topics of four partitions when they are written to."""
    broker = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    first = next(iter(broker.list_topics(timeout=DEADLINE_S).brokers.values()))
    yield f"{first.host}:{first.port}"
    del broker


@pytest.fixture
def refused_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a HOST:PORT that refuses connections and stays reserved.

    Lookups hardly wait for their first connection, which there will not be.
    """
    monkeypatch.setattr(lookup_client, "CONNECT_S", 0.05)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
