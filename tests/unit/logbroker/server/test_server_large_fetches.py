"""A fetch of many partitions is handled in parts, so that it does not hold up other clients."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from logbroker.config import BrokerConfig
from logbroker.server import connection, fetch
from logbroker.server.broker import Broker
from logbroker.wire.apis import ApiKey
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawConnection,
    batch_of,
    fetch_request,
    produce_request,
)
from tests.support.kafka.stepped_broker import apply_views, stepped_broker, turn_until

PARTITIONS = 4
UNKNOWN_TOPIC_OR_PARTITION = 3
LONG_MS = 300_000
BATCH = batch_of(b"x" * 100)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker whose turns are ours, for which every fetch is large and every partition many."""
    monkeypatch.setattr(fetch, "LARGE_BYTES", 0)
    monkeypatch.setattr(fetch, "MANY_PARTITIONS", 0)
    monkeypatch.setattr(fetch, "PARTITIONS_PER_TURN", 1)
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


def publish(broker: Broker, producer: RawConnection, partition: int) -> None:
    request = produce_request("events", BATCH, acks=ACKS_ALL)
    request.topic_data[0].partition_data[0].index = partition
    producer.send(request, PRODUCE_VERSION)
    turn_until(broker, producer.is_readable)
    assert producer.produced()[1] == 0


def fetch_of(*numbers: int, max_wait_ms: int = 0, min_bytes: int = 1) -> Any:
    request = fetch_request("events", 0, min_bytes=min_bytes, max_wait_ms=max_wait_ms)
    request.topics[0].partitions = [
        FetchRequest.FetchTopic.FetchPartition(
            partition=number,
            current_leader_epoch=-1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=2**20,
        )
        for number in numbers
    ]
    return request


def outcomes(broker: Broker, consumer: RawConnection) -> list[tuple[int, int, int]]:
    """Return number, error and size of each partition of the next response."""
    turn_until(broker, consumer.is_readable)
    (topic,) = consumer.receive(FetchResponse, FETCH_VERSION)[1].responses
    return [
        (each.partition_index, each.error_code, len(each.records or b""))
        for each in topic.partitions
    ]


def turn_until_read(broker: Broker, partitions: int) -> None:
    """Make turns until so many partitions of the only request are read."""
    turn_until(broker, lambda: [each.position for each in broker._fetch._reads] == [partitions])


@contextmanager
def paused_read(broker: Broker) -> Iterator[None]:
    """Reads no more than the first partition of the only request meanwhile."""
    turn_until_read(broker, 1)
    broker._loop._inbox.remove(broker._fetch._read_part)
    yield
    broker._loop.call_soon(broker._fetch._read_part)


def test_a_fetch_of_many_partitions_takes_several_turns(
    broker: Broker, producer: RawConnection, consumer: RawConnection
) -> None:
    for number in (1, 3):
        publish(broker, producer, number)
    consumer.send(fetch_of(0, 1, 9, 2, 3), FETCH_VERSION)
    consumer.send(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version=3
    )
    for number in range(1, 5):
        turn_until_read(broker, number)
        assert not consumer.is_readable()
    assert outcomes(broker, consumer) == [
        (0, 0, 0),
        (1, 0, len(BATCH)),
        (9, UNKNOWN_TOPIC_OR_PARTITION, 0),
        (2, 0, 0),
        (3, 0, len(BATCH)),
    ]
    assert broker._counters.errors[ApiKey.FETCH, UNKNOWN_TOPIC_OR_PARTITION] == 1
    turn_until(broker, consumer.is_readable)
    assert consumer.receive(ApiVersionsResponse, 3)[0] == 2


def test_fetches_of_several_connections_are_read_in_turn(
    broker: Broker, producer: RawConnection, consumer: RawConnection
) -> None:
    consumer.send(fetch_of(0, 1, 2, 3), FETCH_VERSION)
    with paused_read(broker):
        producer.send(fetch_of(0, 1, 2), FETCH_VERSION)
        turn_until(broker, lambda: len(broker._fetch._reads) == 2)
    for _ in range(2):
        broker._loop._turn()
    assert sorted(each.position for each in broker._fetch._reads) == [1, 2]
    assert len(outcomes(broker, producer)) == 3
    assert len(outcomes(broker, consumer)) == 4


def test_records_that_arrive_while_a_fetch_is_read_complete_it(
    broker: Broker, producer: RawConnection, consumer: RawConnection
) -> None:
    consumer.send(fetch_of(*range(PARTITIONS), max_wait_ms=LONG_MS), FETCH_VERSION)
    with paused_read(broker):
        publish(broker, producer, 0)
    assert outcomes(broker, consumer)[0] == (0, 0, len(BATCH))


def test_a_topic_that_is_deleted_while_a_fetch_is_read_completes_it(
    broker: Broker, consumer: RawConnection
) -> None:
    broker._registry.create_topic("other", [(0,)], {})
    apply_views(broker)
    request = fetch_of(0, max_wait_ms=LONG_MS)
    request.topics.append(fetch_request("other", 0, min_bytes=1, max_wait_ms=LONG_MS).topics[0])
    consumer.send(request, FETCH_VERSION)
    with paused_read(broker):
        broker._registry.delete_topic("events")
        apply_views(broker)
    turn_until(broker, consumer.is_readable)
    deleted, other = consumer.receive(FetchResponse, FETCH_VERSION)[1].responses
    assert deleted.partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert other.partitions[0].error_code == 0


def test_a_fetch_of_many_partitions_expires(broker: Broker, consumer: RawConnection) -> None:
    consumer.send(fetch_of(*range(PARTITIONS), max_wait_ms=LONG_MS), FETCH_VERSION)
    partition = broker._partitions.get("events", 0)
    turn_until(broker, lambda: broker._fetch._purgatory.find(partition))
    (delayed,) = broker._fetch._purgatory.find(partition)
    assert delayed.timer.call is not None
    delayed.timer.call()
    turn_until_read(broker, 1)
    assert outcomes(broker, consumer) == [(number, 0, 0) for number in range(PARTITIONS)]
    assert not broker._fetch._purgatory.find(partition)


def test_a_connection_that_is_closed_while_its_fetch_is_read_is_forgotten(
    broker: Broker, consumer: RawConnection
) -> None:
    consumer.send(fetch_of(*range(PARTITIONS)), FETCH_VERSION)
    turn_until_read(broker, 1)
    broker._fetch._reads[0].connection.close("idle")
    turn_until(broker, lambda: not broker._fetch._reads)
    assert len(broker._listener) == 0


def test_a_large_fetch_that_is_malformed_closes_its_connection(
    broker: Broker, consumer: RawConnection
) -> None:
    frame = bytearray(consumer.encode(fetch_of(0), FETCH_VERSION))
    frame[-1] = 0xFF
    consumer.socket.sendall(frame)
    turn_until(broker, consumer.is_readable)
    consumer.until_closed()
    assert broker._counters.connections_protocol_errors == 1


def test_a_session_is_refused_to_a_large_fetch(broker: Broker, consumer: RawConnection) -> None:
    request = fetch_of(*range(PARTITIONS))
    request.session_id = 7
    consumer.send(request, FETCH_VERSION)
    turn_until(broker, consumer.is_readable)
    assert consumer.receive(FetchResponse, FETCH_VERSION)[1].error_code == 70


def test_many_small_spans_are_sent_in_several_turns(
    broker: Broker,
    producer: RawConnection,
    consumer: RawConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(PARTITIONS):
        publish(broker, producer, number)
    monkeypatch.setattr(connection, "SEND_BYTES_MIN", connection.SEND_BYTES_PER_TURN)
    consumer.send(fetch_of(*range(PARTITIONS)), FETCH_VERSION)
    turn_until(broker, consumer.is_readable)
    (served,) = [each for each in broker._listener if each._output]
    assert len(served._output) > PARTITIONS
    thread = threading.Thread(target=broker._loop.run, args=(broker._end_turn,))
    thread.start()
    (topic,) = consumer.receive(FetchResponse, FETCH_VERSION)[1].responses
    broker.stop()
    thread.join()
    assert [len(each.records) for each in topic.partitions] == [len(BATCH)] * PARTITIONS
