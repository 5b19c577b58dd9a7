"""Errors, limits and idle timeouts affect only one connection; responses keep their order."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from logbroker.json_log import REPETITIONS_MAX
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    RawConnection,
    batch_of,
    produce_request,
)
from tests.support.processes.waiting import until

REQUEST_BYTES_MAX = 2 * 2**20
UNSUPPORTED_VERSION = 35
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
TRANSACTION = 1
INVALID_TOPIC = 17


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--request-bytes-max", str(REQUEST_BYTES_MAX), "--topic-config", "flush.ms=100")
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log", *options) as broker:
        yield broker.serve()


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def works(connection: RawConnection) -> bool:
    answer = connection.ask(api_versions_request(), ApiVersionsResponse, 3)
    return bool(answer.error_code == 0)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, 3) + b"raw"


NONSENSE = {
    "no-frame-at-all": b"GET / HTTP/1.1\r\n\r\n",
    "a-tls-greeting": bytes.fromhex("160301020001000200"),
    "a-negative-size": struct.pack(">i", -1),
    "an-empty-frame": struct.pack(">i", 0),
    "a-frame-without-a-header": frame(b"abc"),
    "a-frame-above-the-limit": struct.pack(">i", REQUEST_BYTES_MAX + 1),
    "an-unknown-api": frame(header(999, 0)),
    "a-negative-api": frame(header(-1, 0)),
    "a-consumer-group": frame(header(11, 5)),
    "a-version-too-old": frame(header(0, 2)),
    "a-version-too-new": frame(header(1, 17)),
    "a-client-id-that-never-ends": frame(struct.pack(">hhih", 3, 1, 1, 30_000)),
    "half-a-metadata-request": frame(header(3, 1) + struct.pack(">ih", 1, 20)),
    "a-metadata-request-of-two-billion-topics": frame(header(3, 1) + struct.pack(">i", 2**31 - 1)),
    "half-a-produce-request": frame(header(0, 3) + struct.pack(">hhi", -1, 1, 1000)),
    "a-produce-request-of-noise": frame(header(0, 9) + bytes(range(1, 200))),
    "a-fetch-request-of-noise": frame(header(1, 12) + bytes(range(1, 200))),
}


@pytest.mark.parametrize("sent", NONSENSE.values(), ids=NONSENSE)
def test_an_invalid_frame_closes_its_connection_and_logs_one_line(
    broker: BrokerProcess, connection: RawConnection, sent: bytes
) -> None:
    assert works(connection)
    with RawConnection(broker.bootstrap_servers) as strange:
        peer = "{}:{}".format(*strange.socket.getsockname())
        strange.socket.sendall(sent)
        strange.until_closed()
    assert works(connection)
    lines = [line for line in broker.output.splitlines() if f"peer={peer} " in line]
    assert len(lines) == 1
    assert " WARNING logbroker.connection closed " in lines[0]
    assert "Traceback" not in broker.output


def test_requests_before_an_invalid_frame_are_handled(broker: BrokerProcess) -> None:
    broker.make_topic("before-nonsense")
    with RawConnection(broker.bootstrap_servers) as strange:
        produced = strange.produce("before-nonsense", batch_of(b"kept"), acks=ACKS_LEADER)
        assert strange.produced() == (produced, 0, 0)
        strange.socket.sendall(frame(header(999, 0)))
        strange.until_closed()
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.fetch("before-nonsense", 0, max_wait_ms=30_000)
        assert [record.value for record in connection.fetched().records] == [b"kept"]


def test_a_connection_closed_inside_a_frame_is_not_logged(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    with RawConnection(broker.bootstrap_servers) as strange:
        strange.socket.sendall(struct.pack(">i", 1000) + b"only so much")
    assert works(connection)


def test_a_request_that_comes_byte_by_byte_is_a_request(connection: RawConnection) -> None:
    for byte in connection.encode(api_versions_request(), 3):
        connection.socket.sendall(bytes([byte]))
    _, answer = connection.receive(ApiVersionsResponse, 3)
    assert answer.error_code == 0


def test_a_frame_of_the_maximum_size_is_accepted(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    broker.make_topic("large")
    # Above max.message.bytes, so it is refused, but as a batch and not as a frame.
    sent = connection.produce("large", batch_of(bytes(REQUEST_BYTES_MAX - 1_000)), acks=ACKS_ALL)
    assert connection.produced()[:2] == (sent, 10)
    assert works(connection)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    connection: RawConnection,
) -> None:
    connection.socket.sendall(frame(header(18, 99) + b"\0whatever"))
    _, answer = connection.receive(ApiVersionsResponse, 0)
    assert answer.error_code == UNSUPPORTED_VERSION
    (own,) = answer.api_keys
    assert own.api_key == 18
    # So a client learns what to ask in, and asks again on the same connection.
    answer = connection.ask(api_versions_request(), ApiVersionsResponse, own.max_version)
    assert answer.error_code == 0
    assert {0, 1, 2, 3, 18} <= {each.api_key for each in answer.api_keys}


@pytest.mark.parametrize("name", ["a/b", "", "x" * 250])
def test_an_invalid_topic_name_is_not_reported_as_unknown(
    connection: RawConnection, name: str
) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=name)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    answer = connection.ask(request, MetadataResponse, 5)
    assert [topic.error_code for topic in answer.topics] == [INVALID_TOPIC]


def test_transactions_have_no_coordinator(connection: RawConnection) -> None:
    one = FindCoordinatorRequest(key="transaction", key_type=TRANSACTION)
    assert (
        connection.ask(one, FindCoordinatorResponse, 2).error_code
        == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    many = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["one", "two"])
    answer = connection.ask(many, FindCoordinatorResponse, 4)
    assert [(each.key, each.error_code) for each in answer.coordinators] == [
        ("one", TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("two", TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ]


def list_offsets_request(topic: str) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=0
    )
    wanted = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[wanted])


def test_pipelined_requests_get_responses_in_order(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    broker.make_topic("pipelined")
    batch = batch_of(b"value")
    rounds = 20
    frames = b""
    for _ in range(rounds):
        # acks=all waits for a flush, the look-up for a thread; what follows must wait for them.
        for acks in (ACKS_ALL, ACKS_NONE, ACKS_LEADER, ACKS_LEADER, ACKS_NONE):
            frames += connection.encode(produce_request("pipelined", batch, acks=acks), 9)
        frames += connection.encode(list_offsets_request("pipelined"), 6)
        frames += connection.encode(api_versions_request(), 3)
    connection.socket.sendall(frames)

    for number in range(rounds):
        first_id, first_offset = 7 * number + 1, 5 * number
        assert connection.produced() == (first_id, 0, first_offset)
        assert connection.produced() == (first_id + 2, 0, first_offset + 2)
        assert connection.produced() == (first_id + 3, 0, first_offset + 3)
        assert connection.receive(ListOffsetsResponse, 6)[0] == first_id + 5
        assert connection.receive(ApiVersionsResponse, 3)[0] == first_id + 6

    connection.fetch("pipelined", 0, min_bytes=5 * rounds * len(batch), max_wait_ms=30_000)
    assert [record.offset for record in connection.fetched().records] == list(range(5 * rounds))


def test_a_rejected_batch_with_acks_0_closes_the_connection(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    broker.make_topic("refused")
    corrupt = bytearray(batch_of(b"value"))
    corrupt[-1] ^= 1
    with RawConnection(broker.bootstrap_servers) as strange:
        sent = strange.produce("refused", bytes(corrupt), acks=ACKS_LEADER)
        assert strange.produced()[:2] == (sent, 2)
        strange.produce("refused", bytes(corrupt), acks=ACKS_NONE)
        strange.until_closed()
    assert works(connection)


def test_requests_above_the_in_flight_limit_wait(tmp_path: Path) -> None:
    options = ("--requests-in-flight-max", "3", "--topic-config", "flush.ms=20")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve().make_topic("many")
        with RawConnection(broker.bootstrap_servers) as connection:
            sent = []
            for number in range(60):
                # Mixed acks, since consecutive requests of one kind share one answer.
                acks = ACKS_ALL if number % 2 else ACKS_LEADER
                sent.append(connection.produce("many", batch_of(b"value"), acks=acks))
            assert [connection.produced() for _ in sent] == [
                (correlation_id, 0, offset) for offset, correlation_id in enumerate(sent)
            ]


@pytest.mark.parametrize("limit", ["--connections-max", "--connections-per-ip-max"])
def test_one_connection_above_the_limit_is_closed_at_once(tmp_path: Path, limit: str) -> None:
    with BrokerProcess(tmp_path / "log", limit, "3") as broker:
        address = broker.serve().bootstrap_servers
        open_ones = [RawConnection(address) for _ in range(3)]
        assert all(works(connection) for connection in open_ones)
        with RawConnection(address) as refused:
            refused.until_closed()
        broker.until_says("WARNING logbroker.listener rejected peer=")
        assert all(works(connection) for connection in open_ones)

        open_ones.pop().socket.close()
        until(lambda: answers(address), "there is room again")
        for connection in open_ones:
            connection.socket.close()


def test_rejected_connections_do_not_fill_the_disk_with_log_lines(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", "--connections-max", "1") as broker:
        address = broker.serve().bootstrap_servers
        with RawConnection(address) as open_one:
            assert works(open_one)
            for _ in range(3 * REPETITIONS_MAX):
                with RawConnection(address) as refused:
                    refused.until_closed()
            assert works(open_one)
    # They may have taken parts of two periods.
    assert broker.output.count("rejected peer=") <= 2 * REPETITIONS_MAX


def answers(address: str) -> bool:
    """Whether a new connection is taken in."""
    with RawConnection(address) as connection:
        try:
            return works(connection)
        except (ConnectionError, BrokenPipeError):
            return False


def test_a_silent_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", "--connection-idle-s", "5") as broker:
        address = broker.serve().bootstrap_servers
        with RawConnection(address) as silent, RawConnection(address) as busy:
            assert works(silent)
            until(lambda: works(busy) and silent.is_readable(), "the silent one is closed")
            silent.until_closed()
            assert works(busy)
        broker.until_says("reason=idle")
