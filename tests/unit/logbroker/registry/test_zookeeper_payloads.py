"""What is written is what Kafka's own tools read: the shapes were taken from `ZkData.scala`."""

import json
from types import MappingProxyType
from uuid import UUID

import pytest

from logbroker.listeners import ListenerAddress, parse_listeners
from logbroker.registry.cluster import BrokerEndpoint
from logbroker.registry.topic import Topic
from logbroker.registry.zookeeper.payloads import (
    Registration,
    format_broker,
    format_cluster_id,
    format_controller,
    format_producer_id_block,
    format_settings,
    format_slot_holder,
    format_topic,
    parse_broker,
    parse_cluster_id,
    parse_holder,
    parse_next_producer_id,
    parse_settings,
    parse_topic,
)

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0fff")
NOW_MS = 1_700_000_000_123

NO_OBJECTS = [b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", b"[" * 100_000]


def test_a_broker_is_registered_as_kafka_does_it() -> None:
    content = format_broker(Registration(BrokerEndpoint(3, "host-a", 9092), "dir-3"), NOW_MS)
    assert json.loads(content) == {
        "version": 5,
        "host": "host-a",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000123",
        "endpoints": ["PLAINTEXT://host-a:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
        "directory_id": "dir-3",
    }


def test_an_address_of_ip6_has_brackets_where_a_port_follows_it() -> None:
    content = format_broker(Registration(BrokerEndpoint(3, "::1", 9092), "d"), NOW_MS)
    assert json.loads(content)["endpoints"] == ["PLAINTEXT://[::1]:9092"]
    assert parse_broker(3, content).endpoint == BrokerEndpoint(3, "::1", 9092)


def test_every_listener_is_registered_and_read() -> None:
    listeners = parse_listeners("PLAINTEXT://h:1,OUT://[::1]:2", "OUT:PLAINTEXT")
    addresses = [ListenerAddress(*each[:4]) for each in listeners]
    content = format_broker(Registration(BrokerEndpoint.of(3, addresses), "d"), NOW_MS)
    assert json.loads(content)["listener_security_protocol_map"] == {
        "PLAINTEXT": "PLAINTEXT",
        "OUT": "PLAINTEXT",
    }
    endpoint = parse_broker(3, content).endpoint
    assert endpoint.at("OUT") == addresses[1]
    assert endpoint.at("OTHER") is None
    assert (endpoint.host, endpoint.port) == ("h", 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"endpoints": ["OUT://h:1"]},
        {"endpoints": ["PLAINTEXT://h"]},
        {"endpoints": 7},
        {"endpoints": [f"PLAINTEXT://{'h' * 256}:1"]},
        {"endpoints": ["OUT://h:1"], "listener_security_protocol_map": 7},
        {"endpoints": ["OUT://h:1"], "listener_security_protocol_map": {"OUT": "TLS"}},
    ],
)
def test_a_listener_that_cannot_be_read_is_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_broker(3, json.dumps({"host": "h", "port": 1, **fields}).encode())


def test_a_broker_of_kafkas_is_read() -> None:
    content = b'{"version":1,"host":"k","port":9093,"jmx_port":9999,"timestamp":"2233345666"}'
    assert parse_broker(7, content) == Registration(BrokerEndpoint(7, "k", 9093), None)


@pytest.mark.parametrize(
    ("broker_id", "host", "port"),
    [
        (2**31, "h", 1),
        (-1, "h", 1),
        (1, "h", 65_536),
        (1, "h", -1),
        (1, "h" * 256, 1),
        (1, "\ud800", 1),
    ],
)
def test_a_broker_address_that_does_not_fit_the_protocol_is_rejected(
    broker_id: int, host: str, port: int
) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_broker(broker_id, json.dumps({"host": host, "port": port}).encode())


def test_a_topic_is_written_as_kafka_does_it() -> None:
    topic = Topic("t", TOPIC_ID, ((2,), (1,), (2,)), {"retention.ms": "5"})
    content = format_topic(topic)
    assert json.loads(content) == {
        "version": 3,
        "partitions": {"0": [2], "1": [1], "2": [2]},
        "adding_replicas": {},
        "removing_replicas": {},
        "topic_id": "AQIDBAUGBwgJCgsMDQ4P_w",
    }
    assert parse_topic("t", content, topic.settings) == topic


def test_a_topic_of_kafkas_is_read_whatever_the_order_of_its_partitions() -> None:
    content = (
        b'{"removing_replicas":{},"partitions":{"1":[1],"10":[3],"0":[2],"2":[1],"3":[1],"4":[1],'
        b'"5":[1],"6":[1],"7":[1],"8":[1],"9":[1]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w",'
        b'"adding_replicas":{},"version":3}'
    )
    topic = parse_topic("t", content, {})
    assert topic.topic_id == TOPIC_ID
    assert topic.replicas == ((2,), *[(1,)] * 9, (3,))


@pytest.mark.parametrize(
    "content",
    [
        *NO_OBJECTS,
        b"{}",
        b'{"version":1,"partitions":{"0":[1]}}',
        b'{"partitions":{},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":[],"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"1":[1]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"x":[1]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":[]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":[1,2]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":1},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":[Infinity]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":[2147483648]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":[-1]},"topic_id":"AQIDBAUGBwgJCgsMDQ4P_w"}',
        b'{"partitions":{"0":[1]},"topic_id":"AQID"}',
        b'{"partitions":{"0":[1]},"topic_id":7}',
        b'{"partitions":{"0":[1]},"topic_id":null}',
    ],
)
def test_what_is_no_topic_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_topic("t", content, {})


def test_settings_are_written_as_kafka_does_it() -> None:
    content = format_settings({"retention.ms": "5"})
    assert json.loads(content) == {"version": 1, "config": {"retention.ms": "5"}}
    assert parse_settings(content) == {"retention.ms": "5"}
    assert isinstance(parse_settings(content), MappingProxyType)


@pytest.mark.parametrize("content", [*NO_OBJECTS, b"{}", b'{"config":[]}', b'{"config":null}'])
def test_what_has_no_settings_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_settings(content)


def test_a_controller_is_written_as_kafka_does_it() -> None:
    for content in (format_controller(4, NOW_MS), format_slot_holder(4, NOW_MS)):
        assert json.loads(content) == {"version": 1, "brokerid": 4, "timestamp": "1700000000123"}
        assert parse_holder(content) == 4


def test_a_controller_of_a_newer_kafka_is_read() -> None:
    content = b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}'
    assert parse_holder(content) == 9


def test_a_cluster_id_is_written_as_kafka_does_it() -> None:
    content = format_cluster_id("uZs3")
    assert json.loads(content) == {"version": "1", "id": "uZs3"}
    assert parse_cluster_id(content) == "uZs3"


def test_a_block_of_producer_ids_is_written_as_kafka_does_it() -> None:
    content = format_producer_id_block(2, range(1000, 2000))
    assert json.loads(content) == {
        "version": 1,
        "broker": 2,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert parse_next_producer_id(content) == 2000


@pytest.mark.parametrize("content", [*NO_OBJECTS, b"{}", b'{"port":"x","host":"h"}'])
def test_what_makes_no_sense_is_refused_everywhere(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_broker(1, content)
    for parse in (parse_holder, parse_cluster_id, parse_next_producer_id):
        with pytest.raises(ValueError, match=r".+"):
            parse(content)
