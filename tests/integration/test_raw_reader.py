"""The raw client against logbroker and Apache Kafka: the same records, offsets and times."""

import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection
from confluent_kafka import TopicPartition as StockPartition
from confluent_kafka.admin import AdminClient, NewTopic

from logbroker.client.errors import BrokersUnavailable, OffsetGone, TopicReplaced, UnknownTopic
from logbroker.client.raw import (
    EARLIEST,
    LATEST,
    AbortedTransaction,
    LongPoll,
    RawChunk,
    RawCluster,
    RawReader,
    TopicPartition,
)
from logbroker.records.batch import iter_batches
from logbroker.records.record import decode_records
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import ClusterClient, Record
from tests.support.kafka.stock_clients import CODECS
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

TIME_MS = 1_763_712_000_000
BATCH_RECORDS = 20

_names = itertools.count(1)

Server = BrokerProcess | KafkaServer


@pytest.fixture(
    params=[
        "logbroker",
        pytest.param(
            "apache_kafka",
            marks=[
                pytest.mark.long,
                pytest.mark.xdist_group("apache_kafka"),
                pytest.mark.timeout(TEST_TIMEOUT_S),
            ],
        ),
    ]
)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that can be killed and started again."""
    if request.param == "apache_kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    with BrokerProcess(tmp_path / "log") as broker:
        yield broker.serve()


@pytest.fixture
def cluster(server: Server) -> Iterator[RawCluster]:
    with RawCluster(properties_of(server)) as cluster:
        yield cluster


def properties_of(server: Server) -> dict[str, str]:
    return {"bootstrap.servers": server.bootstrap_servers}


def new_topic(server: Server, partitions: int = 1, **settings: str) -> str:
    """A topic that no other test has."""
    topic = f"raw-{next(_names)}"
    ClusterClient(server.bootstrap_servers).make_topic(topic, partitions, **settings)
    return topic


def write(server: Server, topic: str, records: list[Record], **settings: Any) -> None:
    """Write in batches of a few records."""
    few = {"batch.num.messages": BATCH_RECORDS, "linger.ms": 1000}
    ClusterClient(server.bootstrap_servers, **few, **settings).write(topic, records)


def numbered(count: int, partition: int = 0) -> list[Record]:
    return [
        Record(partition, TIME_MS + number, b"key", b"%d %s" % (number, b"." * 50))
        for number in range(count)
    ]


def offsets_in(chunks: list[RawChunk]) -> list[int]:
    """The offsets of the records of each chunk that lie in the range."""
    return [offset for offset, _ in read_values(chunks)]


def read_values(chunks: list[RawChunk]) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for chunk in chunks
        for _, batch in iter_batches(chunk.records)
        for record in decode_records(bytes(batch))
        if chunk.first_wanted <= record.offset < chunk.end
    ]


def read(cluster: RawCluster, topic: str, start: int, end: int, **options: Any) -> list[RawChunk]:
    with RawReader(cluster, TopicPartition(topic, 0), start, end, **options) as reader:
        return list(reader)


@pytest.mark.parametrize("codec", CODECS)
def test_every_range_of_a_log_has_its_records_whatever_they_are_compressed_with(
    server: Server, cluster: RawCluster, codec: str
) -> None:
    topic = new_topic(server)
    records = numbered(500)
    write(server, topic, records, **{"compression.type": codec})
    values = [record.value for record in records]

    for start, end, bytes_max in [(0, 500, 8 << 20), (3, 497, 1), (19, 21, 2000), (7, 7, 1)]:
        chunks = read(cluster, topic, start, end, bytes_max=bytes_max)

        assert read_values(chunks) == list(enumerate(values))[start:end]
        assert [chunk.first_wanted for chunk in chunks] == [
            start,
            *(chunk.next_offset for chunk in chunks[:-1]),
        ][: len(chunks)]
        assert all(chunk.high_watermark == 500 for chunk in chunks)
    # A batch is larger than what was allowed, and came whole.
    assert len(read(cluster, topic, 0, 500, bytes_max=1)) == 500 / BATCH_RECORDS


def test_offsets_for_times_are_exact_inside_compressed_batches(
    server: Server, cluster: RawCluster
) -> None:
    topic = new_topic(server)
    shuffle = random.Random(7)
    # Neighbours change places, so that times are out of order in batches and across them.
    times = [TIME_MS + 10 * number + shuffle.randrange(-60, 60) for number in range(300)]
    records = [Record(0, time_ms, None, b"value" * 20) for time_ms in times]
    write(server, topic, records, **{"compression.type": "zstd"})
    place = TopicPartition(topic, 0)
    asked = sorted({time_ms + delta for time_ms in times[::7] for delta in (-1, 0, 1)})

    for time_ms in [0, *asked, max(times), max(times) + 1]:
        first = next((at for at, each in enumerate(times) if each >= time_ms), None)
        assert cluster.offsets({place: time_ms}) == {place: first}, time_ms - TIME_MS


def test_topics_match_those_of_a_stock_client(server: Server, cluster: RawCluster) -> None:
    topic = new_topic(server, 3)
    admin = AdminClient({**properties_of(server)})
    described = admin.describe_topics(_collection(topic))[topic].result(DEADLINE_S)

    plan = cluster.topics([topic])[topic]

    assert (plan.topic, plan.partitions, plan.is_internal) == (topic, (0, 1, 2), False)
    assert plan.topic_id is not None
    assert _bits(described.topic_id) == plan.topic_id.int
    assert cluster.topics(None)[topic] == plan
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        cluster.topics([topic, "no-such-topic"])
    with pytest.raises(UnknownTopic):
        cluster.topics(["not a name"])
    assert "no-such-topic" not in cluster.topics(None), "asking makes no topic"


def _collection(topic: str) -> Any:
    return TopicCollection([topic])


def _bits(stock_id: Any) -> int:
    halves = stock_id.get_most_significant_bits(), stock_id.get_least_significant_bits()
    most, least = (int(half) % 2**64 for half in halves)
    return most << 64 | least


def test_an_empty_log_begins_where_it_ends(server: Server, cluster: RawCluster) -> None:
    topic = new_topic(server)
    place = TopicPartition(topic, 0)

    assert cluster.offsets({place: EARLIEST}) == cluster.offsets({place: LATEST}) == {place: 0}
    assert cluster.offsets({place: 0}) == {place: None}
    assert read(cluster, topic, 0, 0) == []


def test_records_that_come_later_are_waited_for(server: Server, cluster: RawCluster) -> None:
    topic = new_topic(server)
    write(server, topic, numbered(40))
    with RawReader(cluster, TopicPartition(topic, 0), 0, 80) as reader:
        chunks = [next(reader)]
        write(server, topic, numbered(40))
        chunks += reader

    assert offsets_in(chunks) == list(range(80))


def test_a_deleted_offset_is_reported_with_the_range_of_the_log(
    server: Server, cluster: RawCluster
) -> None:
    topic = new_topic(server)
    write(server, topic, numbered(100))
    admin = AdminClient({**properties_of(server)})
    for deleted in admin.delete_records([StockPartition(topic, 0, 30)]).values():
        deleted.result(DEADLINE_S)
    place = TopicPartition(topic, 0)

    assert cluster.offsets({place: EARLIEST}) == {place: 30}
    for offset in (29, 101):
        with pytest.raises(OffsetGone) as gone:
            read(cluster, topic, offset, 200)
        assert (gone.value.log_start, gone.value.log_end) == (30, 100)
    (chunk,) = read(cluster, topic, 30, 100)
    assert chunk.log_start_offset == 30
    assert offsets_in([chunk]) == list(range(30, 100))


def test_a_recreated_topic_is_not_read_with_old_offsets(
    server: Server, cluster: RawCluster
) -> None:
    topic = new_topic(server)
    write(server, topic, numbered(100))
    admin = AdminClient({**properties_of(server)})
    former = cluster.topics([topic])[topic].topic_id
    with RawReader(cluster, TopicPartition(topic, 0), 0, 100, bytes_max=1) as reader:
        next(reader)
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
        with pytest.raises(UnknownTopic):
            list(reader)
        _make_again(server, topic)
        write(server, topic, numbered(100))
        with pytest.raises(TopicReplaced, match=str(former)):
            list(reader)

    with pytest.raises(TopicReplaced, match=str(former)):
        read(cluster, topic, 0, 100, topic_id=former)
    assert len(offsets_in(read(cluster, topic, 0, 100))) == 100


def _make_again(server: Server, topic: str) -> None:
    client = ClusterClient(server.bootstrap_servers)

    def is_made() -> bool:
        admin = client.admin
        made = admin.create_topics([NewTopic(topic, 1, 1)])[topic]
        return made.exception(DEADLINE_S) is None

    until(is_made, "the former topic is gone")


def test_a_broker_that_is_killed_and_comes_back_loses_the_reader_nothing(
    server: Server, cluster: RawCluster
) -> None:
    topic = new_topic(server)
    write(server, topic, numbered(200), acks="all")
    with RawReader(cluster, TopicPartition(topic, 0), 0, 200, bytes_max=1) as reader:
        chunks = [next(reader), next(reader)]
        server.kill()
        if isinstance(server, BrokerProcess):
            server.serve()
        else:
            server.start()
        chunks += reader

    assert offsets_in(chunks) == list(range(200))


def test_an_unreachable_broker_is_reported_with_the_offset(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        topic = new_topic(broker.serve())
        place = TopicPartition(topic, 0)
        write(broker, topic, numbered(100))
        with RawCluster(properties_of(broker), timeout_s=5.0) as cluster:
            reader = RawReader(cluster, place, 0, 100, bytes_max=1)
            chunks = [next(reader)]
            broker.kill()
            with pytest.raises(
                BrokersUnavailable, match=rf"{topic}-0 at offset \d+ failed for 5 s"
            ):
                chunks.extend(reader)
        broker.serve()
        with RawCluster(properties_of(broker)) as cluster:
            chunks += RawReader(cluster, place, chunks[-1].next_offset, 100)

    assert offsets_in(chunks) == list(range(100))


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_aborted_transactions_are_reported_and_open_ones_are_not_read(
    apache_kafka: KafkaServer,
) -> None:
    topic = new_topic(apache_kafka)
    place = TopicPartition(topic, 0)
    with RawCluster(properties_of(apache_kafka)) as cluster:
        transaction(apache_kafka, topic, "aborted", commits=False)
        transaction(apache_kafka, topic, "committed", commits=True)
        opened = begun(apache_kafka, topic, "open")

        assert cluster.offsets({place: LATEST}) == {place: 7}
        assert cluster.offsets({place: LATEST}, read_committed=True) == {place: 6}
        assert cluster.offsets({place: LATEST}, read_committed=False) == {place: 7}
        (uncommitted,) = read(cluster, topic, 0, 7)
        (committed,) = read(cluster, topic, 0, 6, read_committed=True)
        opened.abort_transaction(DEADLINE_S)

    assert uncommitted.aborted == ()
    (aborted,) = committed.aborted
    headers = [header for header, _ in iter_batches(committed.records)]
    assert aborted == AbortedTransaction(headers[0].producer_id, 0)
    # However many batches the records came in.
    runs = [is_control for is_control, _ in itertools.groupby(each.is_control for each in headers)]
    assert runs == [False, True, False, True]
    assert (committed.last_stable_offset, committed.high_watermark) == (6, 7)


def begun(server: KafkaServer, topic: str, name: str, count: int = 1) -> Producer:
    """A producer with a transaction whose records are in the log."""
    settings: Mapping[str, Any] = {"transactional.id": f"{topic}-{name}", "linger.ms": 100}
    producer = Producer({**properties_of(server), **settings})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"value", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def transaction(server: KafkaServer, topic: str, name: str, *, commits: bool) -> None:
    """Two records and the mark of their end."""
    producer = begun(server, topic, name, count=2)
    if commits:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_topics_of_the_brokers_own_are_marked(apache_kafka: KafkaServer) -> None:
    properties = {**properties_of(apache_kafka), "group.id": "raw-internal"}
    with RawCluster(properties) as cluster:
        _commit_something(apache_kafka, new_topic(apache_kafka))

        assert cluster.topics(None)["__consumer_offsets"].is_internal


def _commit_something(server: KafkaServer, topic: str) -> None:
    with closing(Consumer({**properties_of(server), "group.id": "raw-internal"})) as consumer:
        consumer.commit(offsets=[StockPartition(topic, 0, 0)], asynchronous=False)


@pytest.fixture
def two_brokers(tmp_path: Path, zookeeper: SharedZooKeeper) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2) as brokers:
        yield brokers.serve()


def spread_topic(brokers: BrokerCluster) -> None:
    """Four partitions in turn on two brokers, with as many records as their number says."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    topic = NewTopic("spread", 4, replica_assignment=[[1], [2], [1], [2]])
    admin.create_topics([topic])["spread"].result(DEADLINE_S)
    brokers.until_leaders("spread", [1, 2, 1, 2])
    records = [each for number in range(4) for each in numbered(10 * number, number)]
    ClusterClient(brokers.bootstrap_servers).write("spread", records)


def test_partitions_are_read_of_whichever_broker_leads_them(two_brokers: BrokerCluster) -> None:
    spread_topic(two_brokers)
    places = [TopicPartition("spread", number) for number in range(4)]
    # One of the brokers tells of both.
    first = {"bootstrap.servers": two_brokers.brokers[1].bootstrap_servers}
    with RawCluster(first) as cluster:
        assert cluster.offsets(dict.fromkeys(places, LATEST)) == {
            place: 10 * place.partition for place in places
        }
        assert cluster.offsets(dict.fromkeys(places, TIME_MS + 12)) == {
            place: 12 if place.partition > 1 else None for place in places
        }
        for place in places:
            chunks = list(RawReader(cluster, place, 0, 10 * place.partition))
            assert offsets_in(chunks) == list(range(10 * place.partition))


def test_a_leader_that_comes_back_elsewhere_is_found_there(
    two_brokers: BrokerCluster, tmp_path: Path
) -> None:
    spread_topic(two_brokers)
    place = TopicPartition("spread", 2)
    with RawCluster({"bootstrap.servers": two_brokers.bootstrap_servers}) as cluster:
        reader = RawReader(cluster, place, 0, 20)
        cluster.offsets({place: LATEST})
        two_brokers.brokers[1].kill()
        moved = two_brokers.make_broker(1)
        assert moved.port != two_brokers.brokers[1].port
        with moved.serve():
            assert offsets_in(list(reader)) == list(range(20))


def test_a_leader_that_another_broker_took_the_partition_from_sends_the_reader_there(
    two_brokers: BrokerCluster,
) -> None:
    spread_topic(two_brokers)
    servers = two_brokers.bootstrap_servers
    place = TopicPartition("spread", 3)
    with RawCluster({"bootstrap.servers": servers}) as cluster:
        cluster.offsets({place: LATEST})
        former = cluster.topics(["spread"])["spread"].topic_id
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics(["spread"])["spread"].result(DEADLINE_S)
        topic = NewTopic("spread", 4, replica_assignment=[[2], [1], [2], [1]])
        admin.create_topics([topic])["spread"].result(DEADLINE_S)
        two_brokers.until_leaders("spread", [2, 1, 2, 1])
        ClusterClient(servers).write("spread", numbered(5, 3))

        with pytest.raises(TopicReplaced):
            list(RawReader(cluster, place, 0, 5, topic_id=former))
        assert cluster.offsets({place: LATEST}) == {place: 5}
        assert offsets_in(list(RawReader(cluster, place, 0, 5))) == list(range(5))


def test_a_long_poll_finds_partitions_with_records_above_their_positions(server: Server) -> None:
    topic = new_topic(server, 3)
    write(server, topic, numbered(2))
    partitions = [TopicPartition(topic, number) for number in range(3)]
    positions = {each: 2 if each.partition == 0 else 0 for each in partitions}
    with closing(LongPoll(RawCluster(properties_of(server)), positions)) as poll:
        assert poll.find_news(0.1) == set()
        poll.wake()
        assert poll.find_news(DEADLINE_S) == set(), "it was woken"
        write(server, topic, numbered(1, partition=2))
        until(lambda: poll.find_news(0.1) == {partitions[2]}, "the record is found")
    with closing(LongPoll(RawCluster(properties_of(server)), {partitions[0]: 1})) as poll:
        until(lambda: poll.find_news(0.1) == {partitions[0]}, "an older record is found")


def test_a_long_poll_reports_every_partition_of_a_broker_that_is_gone(
    broker: BrokerProcess,
) -> None:
    partitions = {TopicPartition(new_topic(broker, 2), number): 0 for number in range(2)}
    with closing(LongPoll(RawCluster(properties_of(broker)), partitions)) as poll:
        broker.kill()
        until(lambda: poll.find_news(0.1) == partitions.keys(), "the broker is gone")
    with pytest.raises(BrokersUnavailable):
        LongPoll(RawCluster(properties_of(broker), timeout_s=1), partitions)
