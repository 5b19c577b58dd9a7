"""One turn of the loop serves every connection, whatever others have sent."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest, CreateTopicsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from logbroker.config import BrokerConfig
from logbroker.server import housekeeping, leadership
from logbroker.server.broker import Broker
from logbroker.wire.apis import ApiKey
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    FETCH_VERSION,
    RawConnection,
    batch_of,
    fetch_request,
    produce_request,
)
from tests.support.kafka.stepped_broker import apply_views, stepped_broker

MANY = 400
IN_FLIGHT_MAX = 50


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours."""
    config = BrokerConfig(tmp_path / "log", port=0, requests_in_flight_max=IN_FLIGHT_MAX)
    with stepped_broker(config) as broker:
        yield broker


def connect(broker: Broker) -> RawConnection:
    connection = RawConnection(f"127.0.0.1:{broker.port}")
    broker._loop._turn()
    return connection


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def answered(connection: RawConnection) -> list[int]:
    """The correlation ids of the answers that are there."""
    found = []
    while connection.is_readable():
        found.append(connection.receive(ApiVersionsResponse, 3)[0])
    return found


def test_many_requests_of_one_client_do_not_block_another(broker: Broker) -> None:
    with connect(broker) as greedy, connect(broker) as modest:
        frames = [greedy.encode(api_versions(), 3) for _ in range(MANY)]
        greedy.socket.sendall(b"".join(frames))
        modest.send(api_versions(), 3)
        broker._loop._turn()
        assert answered(modest) == [1]
        seen = answered(greedy)
        assert 0 < len(seen) < MANY // 10
        while len(seen) < MANY:
            broker._loop._turn()
            seen += answered(greedy)
        assert seen == list(range(1, MANY + 1))
        assert broker._counters.requests[ApiKey.API_VERSIONS] == MANY + 1


def test_the_creation_of_partitions_does_not_block_other_clients(broker: Broker) -> None:
    disk_is_free = threading.Event()
    broker._folder_pool.submit(disk_is_free.wait, lambda _: None)
    with connect(broker) as creator, connect(broker) as modest:
        new = CreateTopicsRequest.CreatableTopic(
            name="many", num_partitions=100, replication_factor=1, assignments=[], configs=[]
        )
        creator.send(CreateTopicsRequest(topics=[new], timeout_ms=1, validate_only=False), 7)
        while not broker._membership._is_in_step:
            broker._loop._turn()
        modest.send(api_versions(), 3)
        while not modest.is_readable():
            broker._loop._turn()
        assert answered(modest) == [1]
        assert not creator.is_readable()
        disk_is_free.set()
        while not creator.is_readable():
            broker._loop._turn()
        assert creator.receive(CreateTopicsResponse, 7)[1].topics[0].error_code == 0
        # The response follows the new partitions, which accept batches at once.
        creator.produce("many", batch_of(b"x"), partition=99, acks=ACKS_LEADER)
        while not creator.is_readable():
            broker._loop._turn()
        assert creator.produced()[1:] == (0, 0)


def test_requests_after_postponed_ones_are_handled_after_them(broker: Broker) -> None:
    with connect(broker) as connection:
        frames = [connection.encode(api_versions(), 3) for _ in range(MANY)]
        produce = connection.encode(produce_request("events", batch_of(b"x"), acks=ACKS_LEADER), 9)
        # Cut inside the last frame, whose rest comes while others are postponed.
        connection.socket.sendall(b"".join(frames) + produce[:-10])
        broker._loop._turn()
        connection.socket.sendall(produce[-10:])
        for number in range(1, MANY + 1):
            while not connection.is_readable():
                broker._loop._turn()
            assert connection.receive(ApiVersionsResponse, 3)[0] == number
        while not connection.is_readable():
            broker._loop._turn()
        assert connection.produced() == (MANY + 1, 0, 0)


def test_no_requests_are_read_from_a_client_that_reads_no_responses(broker: Broker) -> None:
    with connect(broker) as connection:
        batch = batch_of(b"x" * 500_000)
        connection.produce("events", batch, acks=ACKS_ALL)
        while not connection.is_readable():
            broker._loop._turn()
        assert connection.produced()[1] == 0
        request = fetch_request("events", 0, min_bytes=1, max_wait_ms=0)
        frames = b"".join(connection.encode(request, FETCH_VERSION) for _ in range(MANY))
        connection.socket.sendall(frames)
        for _ in range(MANY):
            broker._loop.call_soon(lambda: None)
            broker._loop._turn()
        # Some fit into the socket's buffers; three parts of each of the others wait here.
        assert broker._counters.requests[ApiKey.FETCH] < MANY // 2
        thread = threading.Thread(target=broker._loop.run, args=(broker._end_turn,))
        thread.start()
        sizes = {len(connection.fetched().data) for _ in range(MANY)}
        broker.stop()
        thread.join()
        assert sizes == {len(batch)}


def test_partitions_of_a_view_are_opened_a_few_per_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "PARTITIONS_PER_TURN", 10)
    broker._registry.create_topic("many", [(0,)] * 45, {})
    broker._registry.create_topic("small", [(0,)], {})
    opened = [1]
    while broker._partitions.find("small", 0) is None:
        broker._loop._turn()
        opened.append(len(broker._partitions))
    growths = {after - before for before, after in itertools.pairwise(opened)}
    assert growths <= {0, 1, 5, 10}
    assert opened[-1] == 47


def test_partitions_of_a_deleted_topic_are_closed_a_few_per_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "PARTITIONS_PER_TURN", 10)
    topic = broker._registry.create_topic("many", [(0,)] * 45, {})
    apply_views(broker)
    assert len(broker._partitions) == 46
    broker._registry.delete_topic("many", topic.topic_id)
    left = [46]
    while left[-1] > 1:
        broker._loop._turn()
        left.append(len(broker._partitions))
    assert {before - after for before, after in itertools.pairwise(left)} <= {0, 5, 10}
    apply_views(broker)
    assert len(list(broker._config.data_dir.glob("many-*-delete"))) == 45


def test_retention_deletes_segments_of_a_few_logs_per_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "LOGS_PER_TURN", 3)
    broker._registry.create_topic("old", [(0,)] * 10, {"retention.ms": "1"})
    apply_views(broker)
    partitions = [broker._partitions.get("old", number) for number in range(10)]
    for partition in partitions:
        partition.log.append(memoryview(bytearray(batch_of(b"x", timestamp_ms=1))), 1)
        partition.log.write()
        partition.log.advance_high_watermark(partition.log.flush())
    broker._housekeeping.apply_retention()
    deleted = [sum(each.log.log_start_offset for each in partitions)]
    while deleted[-1] < len(partitions):
        broker._loop._turn()
        deleted.append(sum(each.log.log_start_offset for each in partitions))
    assert {after - before for before, after in itertools.pairwise([0, *deleted])} <= {1, 2, 3}
