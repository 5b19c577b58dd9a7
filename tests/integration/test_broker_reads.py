"""Delayed fetches, consumers that never read, and the visibility of records."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    PRODUCE_VERSION,
    RawConnection,
    batch_of,
    produce_request,
)

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
WAIT_MS = 30_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        yield broker.serve()


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    name = str(request.node.name)
    broker.make_topic(name)
    return name


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def put(producer: RawConnection, topic: str, *values: bytes, acks: int = ACKS_ALL) -> int:
    """Produce one batch and wait for its answer: the base offset."""
    sent = producer.produce(topic, batch_of(*values), acks=acks)
    correlation_id, error_code, base_offset = producer.produced()
    assert (correlation_id, error_code) == (sent, 0)
    return base_offset


def test_a_fetch_waits_for_the_first_byte(
    producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    consumer.fetch(topic, 0, max_wait_ms=WAIT_MS)
    put(producer, topic, b"one", b"two")
    fetched = consumer.fetched()
    assert [record.value for record in fetched.records] == [b"one", b"two"]
    assert fetched.high_watermark == 2


def test_a_fetch_waits_for_its_min_bytes(
    producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    value = b"x" * 100
    size = len(batch_of(value))
    consumer.fetch(topic, 0, min_bytes=3 * size, max_wait_ms=WAIT_MS)
    put(producer, topic, value)
    put(producer, topic, value)
    assert not consumer.is_readable()
    put(producer, topic, value)
    assert [record.offset for record in consumer.fetched().records] == [0, 1, 2]


def test_a_fetch_completes_after_its_max_wait(
    producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    put(producer, topic, b"one")
    started_s = time.monotonic()
    consumer.fetch(topic, 1, max_wait_ms=300)
    fetched = consumer.fetched()
    assert time.monotonic() - started_s >= 0.3
    assert (fetched.error_code, fetched.high_watermark, fetched.records) == (0, 1, [])

    started_s = time.monotonic()
    consumer.fetch(topic, 0, min_bytes=100_000, max_wait_ms=300)
    assert [record.value for record in consumer.fetched().records] == [b"one"]
    assert time.monotonic() - started_s >= 0.3


def test_a_fetch_without_min_bytes_completes_at_once(consumer: RawConnection, topic: str) -> None:
    consumer.fetch(topic, 0, min_bytes=1, max_wait_ms=0)
    assert consumer.fetched().records == []
    consumer.fetch(topic, 0, min_bytes=0, max_wait_ms=WAIT_MS)
    assert consumer.fetched().records == []


def test_a_fetch_at_the_end_of_a_segment_does_not_wait_for_the_next_one(
    broker: BrokerProcess,
    producer: RawConnection,
    consumer: RawConnection,
    request: pytest.FixtureRequest,
) -> None:
    topic = str(request.node.name)
    broker.make_topic(topic, segment_bytes="1024")
    for _ in range(3):
        put(producer, topic, b"x" * 900)
    # Three segments of one batch each: no read gives two of them.
    consumer.fetch(topic, 0, min_bytes=1_500, max_wait_ms=10 * WAIT_MS)
    assert [record.offset for record in consumer.fetched().records] == [0]


def test_a_fetch_that_is_full_does_not_wait(
    producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    put(producer, topic, b"x" * 900)
    consumer.fetch(topic, 0, min_bytes=5_000, max_bytes=500, max_wait_ms=10 * WAIT_MS)
    assert [record.offset for record in consumer.fetched().records] == [0]


def test_an_error_does_not_wait(consumer: RawConnection, topic: str) -> None:
    consumer.fetch(topic, 5, max_wait_ms=WAIT_MS)
    assert consumer.fetched().error_code == OFFSET_OUT_OF_RANGE
    consumer.fetch("no-such-topic", 0, max_wait_ms=WAIT_MS)
    assert consumer.fetched().error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_many_fetches_wait_for_one_message(
    broker: BrokerProcess, producer: RawConnection, topic: str
) -> None:
    consumers = [RawConnection(broker.bootstrap_servers) for _ in range(50)]
    for consumer in consumers:
        consumer.fetch(topic, 0, max_wait_ms=WAIT_MS)
    put(producer, topic, b"for all")
    for consumer in consumers:
        assert [record.value for record in consumer.fetched().records] == [b"for all"]
        consumer.socket.close()


def test_a_fetch_returns_one_batch_for_any_size_limit(
    producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    put(producer, topic, b"x" * 50_000)
    put(producer, topic, b"y" * 50_000)
    consumer.fetch(topic, 0, max_bytes=1, partition_bytes_max=1)
    assert [record.offset for record in consumer.fetched().records] == [0]


def test_a_consumer_that_never_reads_does_not_slow_others(
    broker: BrokerProcess, producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    value = b"x" * 900_000
    count = 20
    for _ in range(count):
        put(producer, topic, value, acks=ACKS_LEADER)
    put(producer, topic, b"last")
    before = broker.resident_bytes()

    with RawConnection(broker.bootstrap_servers, receive_buffer_bytes=4096) as stuck:
        asked = 5
        for _ in range(asked):
            stuck.fetch(topic, 0)
        # The stuck client has 90 MB of responses to read; other clients are served.
        for number in range(100):
            offset = put(producer, topic, b"%d" % number)
            consumer.fetch(topic, offset, max_wait_ms=WAIT_MS)
            assert [record.value for record in consumer.fetched().records] == [b"%d" % number]
        assert stuck.is_readable()
        # The broker does not hold the pending responses in memory.
        assert broker.resident_bytes() - before < 20 * 2**20

        for _ in range(asked):
            sizes = [len(record.value or b"") for record in stuck.fetched().records]
            assert sizes[:count] == [len(value)] * count


def test_a_consumer_that_disconnects_with_pending_responses_is_removed(
    broker: BrokerProcess, producer: RawConnection, consumer: RawConnection, topic: str
) -> None:
    for _ in range(10):
        put(producer, topic, b"x" * 900_000, acks=ACKS_LEADER)
    for _ in range(5):
        with RawConnection(broker.bootstrap_servers, receive_buffer_bytes=4096) as leaving:
            leaving.fetch(topic, 0)
            leaving.fetch(topic, 11, max_wait_ms=WAIT_MS)
    offset = put(producer, topic, b"after")
    consumer.fetch(topic, offset, max_wait_ms=WAIT_MS)
    assert [record.value for record in consumer.fetched().records] == [b"after"]
    assert "Traceback" not in broker.output


# --- only what is flushed is seen ---

FLUSH_MS = 1_500
REQUEST_TIMED_OUT = 7


@pytest.fixture
def lazy_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that flushes late, so that there is a time before the flush."""
    with BrokerProcess(tmp_path / "log", "--topic-config", f"flush.ms={FLUSH_MS}") as broker:
        broker.serve().make_topic("lazy")
        yield broker


def test_acks_all_completes_after_the_flush_and_no_record_is_visible_before(
    lazy_broker: BrokerProcess,
) -> None:
    address = lazy_broker.bootstrap_servers
    with RawConnection(address) as producer, RawConnection(address) as consumer:
        started_s = time.monotonic()
        sent = producer.produce("lazy", batch_of(b"one"), acks=ACKS_ALL)
        consumer.fetch("lazy", 0, max_wait_ms=WAIT_MS)
        assert producer.produced() == (sent, 0, 0)
        assert time.monotonic() - started_s >= FLUSH_MS / 1000
        assert [record.value for record in consumer.fetched().records] == [b"one"]


def test_acks_1_completes_before_the_flush_and_the_record_is_not_visible_yet(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "log", "--topic-config", "flush.ms=3600000") as broker:
        broker.serve().make_topic("lazy")
        address = broker.bootstrap_servers
        with RawConnection(address) as producer, RawConnection(address) as consumer:
            assert put(producer, "lazy", b"one", acks=ACKS_LEADER) == 0
            consumer.fetch("lazy", 0)
            unseen = consumer.fetched()
            assert (unseen.error_code, unseen.high_watermark, unseen.records) == (0, 0, [])

            consumer.fetch("lazy", 0, max_wait_ms=10 * WAIT_MS)
            broker.change_topic("lazy", flush_ms="1")
            seen = consumer.fetched()
            assert (seen.high_watermark, len(seen.records)) == (1, 1)


def test_acks_all_times_out_without_a_flush_also_on_a_broker_that_was_idle(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", "--topic-config", "flush.ms=3600000") as broker:
        broker.serve().make_topic("lazy")
        with RawConnection(broker.bootstrap_servers) as producer:
            for _ in range(2):
                request = produce_request("lazy", batch_of(b"one"), acks=ACKS_ALL, timeout_ms=100)
                sent = producer.send(request, PRODUCE_VERSION)
                assert producer.produced()[:2] == (sent, REQUEST_TIMED_OUT)


def test_enough_messages_are_flushed_before_their_time(tmp_path: Path) -> None:
    options = ("--topic-config", "flush.ms=3600000", "--topic-config", "flush.messages=5")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve().make_topic("counted")
        address = broker.bootstrap_servers
        with RawConnection(address) as producer, RawConnection(address) as consumer:
            consumer.fetch("counted", 0, max_wait_ms=WAIT_MS)
            for number in range(4):
                assert put(producer, "counted", b"x", acks=ACKS_LEADER) == number
            assert not consumer.is_readable()
            put(producer, "counted", b"x", acks=ACKS_ALL)
            assert len(consumer.fetched().records) == 5


def test_a_scheduled_flush_follows_changed_settings(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", "--topic-config", "flush.ms=3600000") as broker:
        broker.serve().make_topic("patient")
        with RawConnection(broker.bootstrap_servers) as producer:
            put(producer, "patient", b"one", acks=ACKS_LEADER)
            sent = producer.produce("patient", batch_of(b"two"), acks=ACKS_ALL)
            broker.change_topic("patient", flush_ms="1")
            assert producer.produced() == (sent, 0, 1)
