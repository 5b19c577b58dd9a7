"""Message sets: partitioning, acknowledgement and errors."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from logbroker.client.partitioner import partition_for_key
from logbroker.consumer import ClientClosed, NewMessage, Producer, SendFailed, SentSet
from logbroker.errors import ConfigurationError
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.paper_group import make_topic
from tests.support.processes.waiting import DEADLINE_S

TOPIC = "clicks"
PARTITIONS = 4


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    make_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
    with Producer(broker.bootstrap_servers) as producer:
        yield producer


def sent(future: "Future[SentSet]") -> SentSet:
    return future.result(DEADLINE_S)


def read(broker: BrokerProcess, place: SentSet) -> list[confluent_kafka.Message]:
    """The messages of a set, by a client that is not ours."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "any", "check.crcs": True}
    )
    assert place.offsets[0] is not None
    consumer.assign([TopicPartition(place.topic, place.partition, place.offsets[0])])
    found: list[confluent_kafka.Message] = []
    end_s = time.monotonic() + DEADLINE_S
    while len(found) < len(place.offsets):
        assert time.monotonic() < end_s
        found += consumer.consume(len(place.offsets) - len(found), 0.1)
    consumer.close()
    return found


def test_a_set_lies_in_one_partition_in_its_order(
    producer: Producer, broker: BrokerProcess
) -> None:
    place = sent(producer.send(TOPIC, [b"a", b"b", b"c"]))
    assert place.offsets == (0, 1, 2)
    assert [message.value() for message in read(broker, place)] == [b"a", b"b", b"c"]


def test_sets_without_a_key_are_spread_over_all_partitions(producer: Producer) -> None:
    places = [producer.send(TOPIC, [b"a", b"b"]) for _ in range(200)]
    counts = Counter(sent(each).partition for each in places)
    assert counts.keys() == set(range(PARTITIONS))
    assert sum(counts.values()) == 200


def test_a_keyed_set_goes_where_javas_producer_and_librdkafka_put_its_key(
    producer: Producer, broker: BrokerProcess
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    other = confluent_kafka.Producer(settings)
    theirs: dict[bytes, int] = {}

    def note(_: object, message: confluent_kafka.Message) -> None:
        key, partition = message.key(), message.partition()
        assert key is not None
        assert partition is not None
        theirs[key] = partition

    keys = [b"key-%d" % number for number in range(50)]
    for key in keys:
        other.produce(TOPIC, b"", key, on_delivery=note)
    assert other.flush(DEADLINE_S) == 0
    assert theirs == {key: sent(producer.send(TOPIC, [b"x"], key)).partition for key in keys}
    assert theirs == {key: partition_for_key(key, PARTITIONS) for key in keys}


def test_a_partitioning_function_of_the_users_own_decides(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
    by_length = Producer(broker.bootstrap_servers, partitioner=lambda key, count: len(key) % count)
    with by_length as producer:
        assert sent(producer.send(TOPIC, [b"x"], b"abc")).partition == 3
    wrong = Producer(broker.bootstrap_servers, partitioner=lambda _key, _count: 9)
    with wrong as producer, pytest.raises(ValueError, match=r"returned 9 for b'abc'; .* 0 to 3"):
        producer.send(TOPIC, [b"x"], b"abc")


def test_a_message_keeps_its_headers_its_time_and_its_set_its_key(
    producer: Producer, broker: BrokerProcess
) -> None:
    headers = [("trace", b"1"), ("none", None)]
    before_ms = time.time_ns() // 1_000_000
    messages: list[bytes | NewMessage] = [
        NewMessage(b"a", headers, 1_000),
        NewMessage(None),
        b"plain",
    ]
    first, second, third = read(broker, sent(producer.send(TOPIC, messages, b"key")))
    assert first.headers() == headers
    assert first.timestamp()[1] == 1_000
    assert second.value() is None
    assert third.timestamp()[1] >= before_ms
    assert [each.key() for each in (first, second, third)] == 3 * [b"key"]


def test_what_a_set_could_not_send_is_named_by_its_place(producer: Producer) -> None:
    too_large = bytes(2_000_000)
    with pytest.raises(SendFailed, match=r"1 of 3 messages to 'clicks'.*message 1") as failed:
        sent(producer.send(TOPIC, [b"a", too_large, b"c"]))
    assert failed.value.failures.keys() == {1}


def test_an_empty_set_is_refused(producer: Producer) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        producer.send(TOPIC, [])


def test_a_topic_that_brokers_make_when_asked_is_made(broker: BrokerProcess) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        assert sent(producer.send("new", [b"a"])) == SentSet("new", 0, (0,))


def test_a_topic_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", "--no-auto-create-topics") as broker:
        broker.serve()
        with (
            Producer(broker.bootstrap_servers, delivery_timeout_s=5.0) as producer,
            pytest.raises(SendFailed, match=r"2 of 2 messages to 'none'.*Unknown topic"),
        ):
            producer.send("none", [b"a", b"b"])


def test_brokers_that_are_not_there_fail_a_set_in_time() -> None:
    with (
        Producer("127.0.0.1:1", delivery_timeout_s=1.0) as producer,
        pytest.raises(SendFailed, match="1 of 1"),
    ):
        producer.send(TOPIC, [b"a"])


def test_a_broker_that_goes_away_fails_what_it_did_not_acknowledge_in_time(
    broker: BrokerProcess,
) -> None:
    make_topic(broker.bootstrap_servers, TOPIC, 1)
    with Producer(broker.bootstrap_servers, delivery_timeout_s=5.0) as producer:
        sent(producer.send(TOPIC, [b"a"]))
        broker.kill()
        future = producer.send(TOPIC, [b"b", b"c"])
        with pytest.raises(SendFailed, match="2 of 2") as failed:
            sent(future)
    assert failed.value.failures.keys() == {0, 1}


def test_a_killed_broker_neither_loses_nor_repeats_a_message(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve()
        broker.make_topic(TOPIC)
        with Producer(broker.bootstrap_servers) as producer:
            futures = [producer.send(TOPIC, [b"%d" % number]) for number in range(100)]
            sent(futures[0])
            broker.kill()
            futures += [producer.send(TOPIC, [b"%d" % number]) for number in range(100, 200)]
            broker.serve()
            for future in futures:
                sent(future)
        everything = SentSet(TOPIC, 0, tuple(range(200)))
        assert [message.value() for message in read(broker, everything)] == [
            b"%d" % number for number in range(200)
        ]


def test_flush_waits_until_nothing_is_under_way(producer: Producer) -> None:
    futures = [producer.send(TOPIC, [b"a"]) for _ in range(100)]
    assert producer.flush(DEADLINE_S)
    assert all(each.done() for each in futures)


def test_flush_reports_a_timeout(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve()
        broker.make_topic(TOPIC)
        with Producer(broker.bootstrap_servers) as producer:
            sent(producer.send(TOPIC, [b"a"]))
            broker.kill()
            future = producer.send(TOPIC, [b"b"])
            assert not producer.flush(0.01)
            broker.serve()
            assert sent(future).offsets == (1,)


def test_closing_waits_for_what_is_under_way_and_ends_all_sending(producer: Producer) -> None:
    future = producer.send(TOPIC, [b"a"])
    producer.close()
    assert future.done()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(TOPIC, [b"b"])


def test_all_invalid_settings_are_rejected_together() -> None:
    with pytest.raises(ConfigurationError, match=r"'acks'.*bootstrap_servers.*delivery_timeout_s"):
        Producer("", delivery_timeout_s=0.0, client_settings={"acks": 1, "linger.ms": 1})


def test_a_setting_that_librdkafka_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no\.such"):
        Producer("127.0.0.1:1", client_settings={"no.such": "setting"})


def test_librdkafkas_own_settings_are_passed_on(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap_servers, TOPIC, 1)
    small = {"message.max.bytes": 1_000}
    with (
        Producer(broker.bootstrap_servers, client_settings=small) as producer,
        pytest.raises(SendFailed, match="too large"),
    ):
        sent(producer.send(TOPIC, [bytes(2_000)]))
