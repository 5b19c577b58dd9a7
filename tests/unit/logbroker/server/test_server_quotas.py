"""Client quotas on connections: what is answered at once, and what waits then."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.produce import ProduceResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from tests.support.kafka.quota_broker import (
    RAW,
    QuotaBroker,
    create_topic,
)
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawConnection,
    batch_of,
    produce_request,
)
from tests.support.kafka.raw_quotas import (
    ANY,
    DEFAULT,
    EXACT,
    Entity,
    alter_quotas,
    alteration,
    describe_quotas,
    described,
)
from tests.support.processes.waiting import until

INVALID_REQUEST = 42
CLUSTER_AUTHORIZATION_FAILED = 31
LEADER_NOT_AVAILABLE = 5
THROTTLING_QUOTA_EXCEEDED = 89
FOREVER = 60_000
"""A throttle time in milliseconds that no test waits for."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaBroker]:
    with QuotaBroker(tmp_path_factory.mktemp("quotas"), auto_create_topics=True) as broker:
        yield broker


@pytest.fixture
def broker(running: QuotaBroker) -> Iterator[QuotaBroker]:
    """A broker without quotas, at first and in the end."""
    yield running
    running.clear()


def delete_topic(connection: RawConnection, name: str, *, version: int) -> tuple[int, int]:
    """Delete a topic; returns error code and throttle time."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    answer = connection.ask(request, DeleteTopicsResponse, version)
    return answer.responses[0].error_code, answer.throttle_time_ms


def throttle_of_produce(connection: RawConnection) -> int:
    """Return the throttle time of the next Produce response, which reports success."""
    _, answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


# --- describe and alter ---


def test_quotas_are_described_by_filters(broker: QuotaBroker) -> None:
    admin = broker.admin
    entities: list[Entity] = [
        {"user": "alice"},
        {"user": "alice", "client-id": "app"},
        {"user": None},
        {"client-id": "app"},
        {"client-id": None},
    ]
    address: Entity = {"ip": "2001:db8::7"}
    broker.set({"ip": "2001:0DB8::7"}, connection_creation_rate=5)
    for version in (0, 1):
        changes = [
            alteration(each, {"producer_byte_rate": place + 1.0 + version})
            for place, each in enumerate(entities)
        ]
        assert alter_quotas(admin, *changes, version=version) == [(0, None)] * len(entities)

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[Entity]:
        answers = [
            describe_quotas(admin, *components, strict=strict, version=version)
            for version in (0, 1)
        ]
        first, second = map(described, answers)
        assert first == second
        return [entity for entity, _ in first]

    def same(wanted: list[Entity], present: list[Entity]) -> bool:
        return sorted(map(str, wanted)) == sorted(map(str, present))

    assert same(found(), [*entities, address])
    assert found(("ip", EXACT, "2001:DB8::7")) == [address]
    assert found(("ip", ANY, None), strict=True) == [address]
    assert same(found(("user", EXACT, "alice")), entities[:2])
    assert found(("user", EXACT, "alice"), strict=True) == [{"user": "alice"}]
    assert found(("user", DEFAULT, None)) == [{"user": None}]
    assert same(found(("user", ANY, None)), entities[:3])
    assert found(("user", ANY, None), ("client-id", ANY, None)) == [entities[1]]
    assert same(found(("client-id", ANY, None), strict=True), entities[3:])
    assert found(("user", EXACT, "bob")) == []
    values = dict(described(describe_quotas(admin, ("user", DEFAULT, None)))[0][1])
    assert values == {"producer_byte_rate": 4.0}


def test_a_change_keeps_the_other_quotas_of_an_entity(broker: QuotaBroker) -> None:
    entity: Entity = {"user": "alice"}
    broker.set(entity, producer_byte_rate=1000, request_percentage=12.5)
    broker.set(entity, producer_byte_rate=None, controller_mutation_rate=0.5)
    wanted = {"request_percentage": 12.5, "controller_mutation_rate": 0.5}
    assert described(describe_quotas(broker.admin)) == [(entity, wanted)]
    broker.set(entity, **dict.fromkeys(wanted))
    assert described(describe_quotas(broker.admin)) == []


def test_a_validated_change_is_not_made(broker: QuotaBroker) -> None:
    change = alteration({"user": "alice"}, {"producer_byte_rate": 1000.0})
    assert alter_quotas(broker.admin, change, validate_only=True) == [(0, None)]
    assert described(describe_quotas(broker.admin)) == []


@pytest.mark.parametrize(
    ("entity", "values", "reason"),
    [
        ({}, {"producer_byte_rate": 1.0}, "empty"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "user is empty"),
        ({"group": "a"}, {"producer_byte_rate": 1.0}, "allowed: user, client-id, ip"),
        ({"user": "a", "ip": "::1"}, {"producer_byte_rate": 1.0}, "allowed: ip alone"),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}, "not a quota of this entity"),
        ({"ip": "localhost"}, {"connection_creation_rate": 1.0}, "IPv4 or IPv6 address"),
        ({"user": "a"}, {"bytes": 1.0}, "allowed: producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "more than 0"),
        ({"user": "a"}, {"consumer_byte_rate": 0.5}, "whole number"),
    ],
)
def test_a_change_that_is_not_allowed_is_refused_and_others_are_made(
    broker: QuotaBroker, entity: Entity, values: dict[str, float], reason: str
) -> None:
    good = alteration({"user": "good"}, {"producer_byte_rate": 5.0})
    (code, text), other = alter_quotas(broker.admin, alteration(entity, values), good)
    assert (code, other) == (INVALID_REQUEST, (0, None))
    assert text is not None
    assert reason in text
    assert described(describe_quotas(broker.admin)) == [
        ({"user": "good"}, {"producer_byte_rate": 5.0})
    ]


@pytest.mark.parametrize(
    "components",
    [
        [("user", EXACT, "a"), ("user", EXACT, "b")],
        [("group", EXACT, "a")],
        [("ip", EXACT, "localhost")],
        [("user", EXACT, None)],
        [("user", DEFAULT, "a")],
        [("user", 3, None)],
    ],
)
def test_a_malformed_filter_is_refused(
    broker: QuotaBroker, components: list[tuple[str, int, str | None]]
) -> None:
    answer = describe_quotas(broker.admin, *components)
    assert answer.error_code == INVALID_REQUEST
    assert answer.error_message


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    entity: Entity = {"user": None, "client-id": "app"}
    with QuotaBroker(tmp_path) as first:
        first.set(entity, consumer_byte_rate=4096)
    with QuotaBroker(tmp_path) as second:
        assert described(describe_quotas(second.admin)) == [(entity, {"consumer_byte_rate": 4096})]
        assert second.broker._meters.is_active


# --- producers and consumers ---


def test_a_producer_over_its_rate_is_answered_at_once_and_waits_then(broker: QuotaBroker) -> None:
    broker.set(RAW, producer_byte_rate=10)
    batch = batch_of(bytes(2_000))
    with broker.connect() as connection:
        create_topic(connection, "produced")
        sent = connection.encode, "produced", batch
        for _ in range(3):
            connection.produce(sent[1], sent[2], acks=ACKS_LEADER)
        assert throttle_of_produce(connection) > FOREVER
        assert broker.muted == 1
        assert not connection.is_readable()
        # The quota's end is the end of what follows from it.
        broker.set(RAW, producer_byte_rate=None)
        assert [throttle_of_produce(connection) for _ in range(2)] == [0, 0]
    assert broker.muted == 0
    assert broker.throttled("producer_byte_rate") >= 1


def test_every_version_of_a_produce_response_says_its_throttle_time(broker: QuotaBroker) -> None:
    broker.set(RAW, producer_byte_rate=10)
    with broker.connect() as connection:
        create_topic(connection, "versions")
    for version in range(3, 12):
        with broker.connect() as connection:
            connection.produce(
                "versions", batch_of(bytes(2_000)), acks=ACKS_LEADER, version=version
            )
            _, answer = connection.receive(ProduceResponse, version)
            assert answer.throttle_time_ms > FOREVER
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_producer_without_acks_waits_too(broker: QuotaBroker) -> None:
    broker.set(RAW, producer_byte_rate=10)
    with broker.connect() as connection:
        create_topic(connection, "no-acks")
        connection.produce("no-acks", batch_of(bytes(2_000)), acks=ACKS_NONE)
        until(lambda: broker.muted == 1, "the connection waits")
    broker.clear()
    until(lambda: broker.muted == 0, "the closed connection no longer counts")


def test_clients_without_a_quota_are_not_throttled(broker: QuotaBroker) -> None:
    broker.set({"user": "alice"}, producer_byte_rate=10)
    broker.set({"client-id": "other"}, producer_byte_rate=10, request_percentage=0.001)
    with broker.connect() as connection:
        create_topic(connection, "unlimited")
        for _ in range(3):
            connection.produce("unlimited", batch_of(bytes(2_000)), acks=ACKS_LEADER)
        assert [throttle_of_produce(connection) for _ in range(3)] == [0, 0, 0]
    assert broker.muted == 0


def test_a_consumer_over_its_rate_gets_an_empty_answer_and_waits(broker: QuotaBroker) -> None:
    with broker.connect() as connection:
        create_topic(connection, "fetched")
        # Consumers see a batch once it is flushed.
        connection.produce("fetched", batch_of(bytes(5_000)), acks=ACKS_ALL)
        throttle_of_produce(connection)
    broker.set(RAW, consumer_byte_rate=10)
    with broker.connect() as first, broker.connect() as second:
        # A batch above the limit of the whole window is delivered once all the same.
        first.fetch("fetched", 0)
        _, answer = first.receive(FetchResponse, FETCH_VERSION)
        assert len(answer.responses[0].partitions[0].records) > 5_000
        assert answer.throttle_time_ms > FOREVER
        second.fetch("fetched", 0)
        _, answer = second.receive(FetchResponse, FETCH_VERSION)
        assert answer.responses == []
        assert answer.throttle_time_ms > FOREVER
        assert broker.muted == 2
        second.fetch("fetched", 0)
        broker.set(RAW, consumer_byte_rate=1_000_000)
        assert len(second.fetched().data) > 5_000


def test_requests_that_take_too_much_time_are_throttled(broker: QuotaBroker) -> None:
    broker.set(RAW, request_percentage=0.0001)
    with broker.connect() as connection:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answers = [connection.ask(request, MetadataResponse, 12) for _ in range(2)]
    assert answers[0].throttle_time_ms == 0
    assert 0 < answers[1].throttle_time_ms <= 1_000
    assert answers[0].topics == answers[1].topics


# --- connections ---


def test_an_address_that_connects_too_often_is_closed_unserved(broker: QuotaBroker) -> None:
    broker.set({"ip": "127.0.0.1"}, connection_creation_rate=1)
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with ExitStack() as stack:
        # A new address begins with a burst of ten seconds.
        connections = [stack.enter_context(broker.connect()) for _ in range(12)]
        for each in connections[:10]:
            assert each.ask(request, MetadataResponse, 9).brokers
        for each in connections[10:]:
            each.until_closed()
    assert broker.throttled("connection_creation_rate") == 2
    broker.clear()
    with broker.connect() as connection:
        assert connection.ask(request, MetadataResponse, 9).brokers


# --- partitions ---


def test_partition_changes_over_the_rate_are_refused(broker: QuotaBroker) -> None:
    broker.set(RAW, controller_mutation_rate=0.1)
    with broker.connect() as connection:
        # The first change may overdraw the bucket, as in Kafka.
        code, throttle_ms = create_topic(connection, "first", 20)
        assert code == 0
        assert throttle_ms > FOREVER
        until(lambda: broker.muted == 1, "the connection waits")
    with broker.connect() as connection:
        assert create_topic(connection, "validated", validate_only=True)[0] == 0
    with broker.connect() as connection:
        code, throttle_ms = create_topic(connection, "second")
        assert code == THROTTLING_QUOTA_EXCEEDED
        assert throttle_ms > FOREVER
    with broker.connect() as connection:
        assert delete_topic(connection, "first", version=5)[0] == THROTTLING_QUOTA_EXCEEDED
    with broker.connect() as connection:
        assert grow_topic(connection, "first", 21) == THROTTLING_QUOTA_EXCEEDED
    with broker.connect() as connection:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="third")],
            allow_auto_topic_creation=True,
        )
        answer = connection.ask(request, MetadataResponse, 9)
        assert answer.topics[0].error_code == LEADER_NOT_AVAILABLE
        assert answer.throttle_time_ms > FOREVER
    assert {"second", "third"}.isdisjoint(broker.broker._registry.view.topics)
    # Clients of older versions do not know the error: they only wait longer.
    with broker.connect() as connection:
        assert create_topic(connection, "fourth", version=5)[0] == 0
    with broker.connect() as connection:
        code, throttle_ms = delete_topic(connection, "first", version=4)
        assert code == 0
        assert throttle_ms > FOREVER


def grow_topic(connection: RawConnection, name: str, partitions: int) -> int:
    """Add partitions; returns the error code."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name, count=partitions, assignments=None
    )
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    answer = connection.ask(request, CreatePartitionsResponse, 3)
    return int(answer.results[0].error_code)


# --- authentication ---


def test_requests_around_an_authentication_wait_in_their_order(tmp_path: Path) -> None:
    with QuotaBroker(tmp_path, "SASL_PLAINTEXT", connections_max_reauth_ms=10**9) as broker:
        broker.add_user("alice", "password")
        broker.set({"user": "alice"}, producer_byte_rate=10)
        create_topic(broker.admin, "authenticated")
        with broker.connect() as connection:
            handshake = SaslHandshakeRequest(mechanism="PLAIN")
            assert connection.ask(handshake, SaslHandshakeResponse, 1).error_code == 0
            token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0password")
            assert connection.ask(token, SaslAuthenticateResponse, 2).error_code == 0
            produce = produce_request("authenticated", batch_of(bytes(2_000)), acks=ACKS_LEADER)
            frames = [
                connection.encode(produce, PRODUCE_VERSION),
                connection.encode(SaslHandshakeRequest(mechanism="PLAIN"), 1),
            ]
            connection.socket.sendall(b"".join(frames))
            assert throttle_of_produce(connection) > FOREVER
            assert not connection.is_readable()
            broker.set({"user": "alice"}, producer_byte_rate=None)
            assert connection.receive(SaslHandshakeResponse, 1)[1].error_code == 0
            assert connection.ask(token, SaslAuthenticateResponse, 2).error_code == 0
            offset = connection.produce("authenticated", batch_of(b"last"), acks=ACKS_LEADER)
            assert connection.produced() == (offset, 0, 1)
