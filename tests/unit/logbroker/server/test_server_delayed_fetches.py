"""Delayed fetches are read again without holding up other clients."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from logbroker.config import BrokerConfig
from logbroker.server import fetch
from logbroker.server.broker import Broker
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    FETCH_VERSION,
    RawConnection,
    batch_of,
    fetch_request,
)
from tests.support.kafka.stepped_broker import stepped_broker, turn_until

PARTITIONS = 3
LONG_MS = 300_000
BATCH = batch_of(b"x" * 100)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours."""
    with stepped_broker(BrokerConfig(tmp_path / "log", port=0), PARTITIONS) as broker:
        yield broker


@pytest.fixture
def producer(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(f"127.0.0.1:{broker.port}") as producer:
        yield producer


@pytest.fixture
def consumer(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(f"127.0.0.1:{broker.port}") as consumer:
        yield consumer


def publish(broker: Broker, producer: RawConnection) -> None:
    producer.produce("events", BATCH, acks=ACKS_ALL)
    turn_until(broker, producer.is_readable)
    assert producer.produced()[1] == 0


def fetch_of_all(min_bytes: int) -> Any:
    request = fetch_request("events", 0, min_bytes=min_bytes, max_wait_ms=LONG_MS)
    first = request.topics[0].partitions[0]
    request.topics[0].partitions = [
        FetchRequest.FetchTopic.FetchPartition(
            partition=number,
            current_leader_epoch=-1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=first.partition_max_bytes,
        )
        for number in range(PARTITIONS)
    ]
    return request


def waiting(broker: Broker) -> int:
    return len(broker._fetch._purgatory.find(broker._partitions.get("events", 0)))


def test_a_fetch_of_many_partitions_is_read_again_after_a_pause(
    broker: Broker,
    producer: RawConnection,
    consumer: RawConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "MANY_PARTITIONS", 0)
    monkeypatch.setattr(fetch, "READ_PAUSE_S", LONG_MS)
    consumer.send(fetch_of_all(min_bytes=2 * len(BATCH)), FETCH_VERSION)
    turn_until(broker, lambda: waiting(broker))
    for _ in range(3):
        publish(broker, producer)
        assert not consumer.is_readable()
    (delayed,) = broker._fetch._purgatory.find(broker._partitions.get("events", 0))
    assert delayed.next_read is not None
    assert delayed.next_read.call is not None
    delayed.next_read_s = -math.inf
    delayed.next_read.call()
    turn_until(broker, consumer.is_readable)
    answer = consumer.receive(FetchResponse, FETCH_VERSION)[1]
    assert len(answer.responses[0].partitions[0].records) == 3 * len(BATCH)
    assert not waiting(broker)


def test_a_fetch_of_many_partitions_gets_the_first_records_at_once(
    broker: Broker,
    producer: RawConnection,
    consumer: RawConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "MANY_PARTITIONS", 0)
    monkeypatch.setattr(fetch, "READ_PAUSE_S", LONG_MS)
    consumer.send(fetch_of_all(min_bytes=1), FETCH_VERSION)
    turn_until(broker, lambda: waiting(broker))
    publish(broker, producer)
    turn_until(broker, consumer.is_readable)


def test_delayed_fetches_are_read_again_in_several_turns(
    broker: Broker,
    producer: RawConnection,
    consumer: RawConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "PARTITIONS_PER_TURN", PARTITIONS)
    sent = [consumer.send(fetch_of_all(min_bytes=1), FETCH_VERSION) for _ in range(5)]
    turn_until(broker, lambda: waiting(broker) == len(sent))
    left = [len(sent)]
    producer.produce("events", BATCH, acks=ACKS_ALL)

    def is_done() -> bool:
        left.append(waiting(broker))
        return left[-1] == 0

    turn_until(broker, is_done)
    assert set(left) == {5, 4, 3, 2, 1, 0}
    for number in sent:
        assert consumer.receive(FetchResponse, FETCH_VERSION)[0] == number


def test_a_fetch_of_a_closed_connection_is_not_read_again(
    broker: Broker,
    producer: RawConnection,
    consumer: RawConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "PARTITIONS_PER_TURN", PARTITIONS)
    for _ in range(3):
        consumer.send(fetch_of_all(min_bytes=1), FETCH_VERSION)
    turn_until(broker, lambda: waiting(broker) == 3)
    producer.produce("events", BATCH, acks=ACKS_ALL)
    turn_until(broker, lambda: broker._fetch._due)
    next(iter(broker._fetch._due)).connection.close("idle")
    turn_until(broker, lambda: not broker._fetch._due)
    publish(broker, producer)
