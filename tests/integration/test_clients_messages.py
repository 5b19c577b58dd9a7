"""Stock clients find records by time and read them back, for every client and codec."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from logbroker.records.batch import BatchHeader, iter_batches
from logbroker.records.compression import Codec
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.stock_clients import (
    CODECS,
    LIBRARIES,
    KcatClient,
    StockClient,
    sample_records,
)
from tests.support.processes.waiting import DEADLINE_S

START_MS = 1_700_000_000_000
COUNT = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        yield broker.serve()


@pytest.fixture(params=LIBRARIES)
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> StockClient:
    return LIBRARIES[request.param](broker.bootstrap_servers)


@pytest.fixture
def kcat(broker: BrokerProcess) -> KcatClient:
    return KcatClient(broker.bootstrap_servers)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that says, in the broker's folder, which test it belongs to."""
    name = request.node.name.replace("[", ".").rstrip("]")
    return "".join(each if each.isalnum() or each in ".-" else "-" for each in name)


def batches_on_disk(broker: BrokerProcess, topic: str) -> list[BatchHeader]:
    segment = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    return [header for header, _ in iter_batches(segment.read_bytes())]


def codecs_on_disk(broker: BrokerProcess, topic: str) -> set[Codec]:
    return {Codec(header.compression) for header in batches_on_disk(broker, topic)}


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_client_reads_back_what_it_sent(
    client: StockClient, broker: BrokerProcess, topic: str, codec: str, is_idempotent: bool
) -> None:
    client.create_topic(topic)
    sent = sample_records(COUNT, START_MS)
    offsets = client.produce(topic, sent, codec=codec, is_idempotent=is_idempotent)
    assert offsets == list(range(COUNT))

    read = client.read(topic, 0, COUNT)
    assert [record.offset for record in read] == offsets
    assert [record.as_sent for record in read] == sent
    assert [record.offset for record in client.read(topic, 37, 5)] == [37, 38, 39, 40, 41]

    headers = batches_on_disk(broker, topic)
    # A busy machine decides how many records a batch has, and librdkafka does not compress a
    # batch that would grow: one of a few records.
    assert len(headers) < COUNT
    largest = max(headers, key=lambda header: header.record_count)
    assert Codec(largest.compression) is Codec[codec.upper()]
    assert {header.producer_id >= 0 for header in headers} == {is_idempotent}


@pytest.mark.parametrize("codec", CODECS)
def test_a_client_finds_offsets_by_time_to_the_record(
    client: StockClient, topic: str, codec: str
) -> None:
    client.create_topic(topic)
    sent = sample_records(COUNT, START_MS)
    client.produce(topic, sent, codec=codec, is_idempotent=False)

    assert client.offset_for_time(topic, START_MS - 1_000) == 0
    for number in (0, 1, COUNT // 2, COUNT - 1):
        time_ms = sent[number].timestamp_ms
        assert client.offset_for_time(topic, time_ms) == number
        assert client.offset_for_time(topic, time_ms - 9) == number
    assert client.offset_for_time(topic, sent[-1].timestamp_ms + 1) is None


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_back_what_it_sent_and_finds_it_by_time(
    kcat: KcatClient, broker: BrokerProcess, topic: str, codec: str
) -> None:
    # kcat has no admin commands: the first thing it sends creates the topic.
    lines = [f"key-{number}:value {number} \u00e4 {50 * '.'}" for number in range(COUNT)]
    kcat.produce_lines(topic, lines, codec=codec, headers=["trace=1", "origin=here"])
    kcat.produce_lines(topic, lines[:10], codec=codec, is_idempotent=True)

    read = kcat.read(topic, 0, COUNT + 10)
    assert [record.offset for record in read] == list(range(COUNT + 10))
    found = [f"{(record.key or b'').decode()}:{(record.value or b'').decode()}" for record in read]
    assert found == lines + lines[:10]
    assert {record.headers for record in read[:COUNT]} == {(("trace", b"1"), ("origin", b"here"))}
    assert {record.headers for record in read[COUNT:]} == {()}
    assert codecs_on_disk(broker, topic) == {Codec[codec.upper()]}

    times = [record.timestamp_ms for record in read]
    assert kcat.offset_for_time(topic, times[0] - 1) == 0
    assert kcat.offset_for_time(topic, times[COUNT]) == times.index(times[COUNT])
    assert kcat.offset_for_time(topic, max(times) + 1) is None
    assert topic in kcat.run("-L")


def test_every_client_reads_what_all_the_others_sent(
    broker: BrokerProcess, kcat: KcatClient, topic: str
) -> None:
    clients = [make(broker.bootstrap_servers) for make in LIBRARIES.values()]
    clients[0].create_topic(topic)
    sent = []
    for number, client in enumerate(clients):
        for codec in CODECS:
            # Text, since kcat reads nothing else.
            records = [
                record._replace(value=b"%d" % number)
                for record in sample_records(20, START_MS + 1_000 * number)
            ]
            client.produce(topic, records, codec=codec, is_idempotent=True)
            sent += records

    assert codecs_on_disk(broker, topic) == set(Codec)
    for read in [*(client.read for client in clients), kcat.read]:
        assert [record.as_sent for record in read(topic, 0, len(sent))] == sent


def test_a_transactional_producer_is_rejected_at_once(
    broker: BrokerProcess,
) -> None:
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "transfers"}
    with (
        closing(KafkaProducer(**settings)) as producer,
        pytest.raises(KafkaError, match="TransactionalIdAuthorizationFailed"),
    ):
        producer.init_transactions()


def test_librdkafka_does_not_retry_transactions(broker: BrokerProcess) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "transfers"}
    producer = Producer(settings)
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(DEADLINE_S)
    error = refused.value.args[0]
    assert error.fatal()
    assert error.code() == ConfluentError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
