"""Mirrors from Apache Kafka and to it."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import (
    READY,
    ClusterClient,
    MirrorProcess,
    Record,
    until_copied,
)
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.xdist_group("apache_kafka"), pytest.mark.timeout(TEST_TIMEOUT_S)]

TIME_MS = 1_763_712_000_000
TOPIC = "mirrored_both_ways"
PARTITIONS = 2
SESSION_MS = 6_000
"""The least that brokers take by default."""


def made_in(name: str, count: int) -> list[Record]:
    headers = (("origin", name.encode()), ("empty", None), ("empty", b""))
    return [
        Record(number % PARTITIONS, TIME_MS + number, b"key", b"%s %d" % (headers[0][1], number))
        if number % 3
        else Record(number % PARTITIONS, TIME_MS + number, None, None, headers)
        for number in range(count)
    ]


def test_records_go_from_apache_kafka_and_to_it(
    apache_kafka: KafkaServer, broker: BrokerProcess, tmp_path: Path
) -> None:
    kafka = ClusterClient(apache_kafka.bootstrap_servers)
    ours = ClusterClient(broker.bootstrap_servers)
    # The last setting has one possible value at our brokers, and it is another one.
    kafka.make_topic(TOPIC, PARTITIONS, retention_ms="-1", index_interval_bytes="8192")
    kafka.write(TOPIC, made_in("kafka", 300))
    aborted_and_committed(kafka)
    there = MirrorProcess(
        tmp_path / "1",
        *(kafka.servers, ours.servers, TOPIC, "--origin", "kafka", "--group", "there"),
        session_ms=SESSION_MS,
    )
    back = MirrorProcess(
        tmp_path / "2",
        *(ours.servers, kafka.servers, TOPIC, "--origin", "ours", "--compression", "lz4"),
        session_ms=SESSION_MS,
    )
    with there, back:
        there.launch()
        until(lambda: ours.partitions(TOPIC) == PARTITIONS, "the topic is made")
        there.until_says("settings rejected")
        ours.write(TOPIC, made_in("ours", 300))
        back.serve()
        there.until_says(READY)
        until_copied(ours, TOPIC, 602)
        until(lambda: back.metric("records_total") == 300, "all has gone back")
        # Behind the last record there is the mark of a transaction.
        until(
            lambda: kafka.committed("there", TOPIC, PARTITIONS) == kafka.ends(TOPIC),
            "all is committed",
        )
        until(lambda: there.metric("lag_records") == 0, "nothing lags behind")
        assert there.metric("skipped_total", reason="origin") == 300
        assert there.stop() == back.stop() == 0
    for client, own, other in ((kafka, "kafka", "ours"), (ours, "ours", "kafka")):
        for number, partition in enumerate(client.read(TOPIC)):
            plain = [each for each in partition if each.key != b"transaction"]
            mirrored = [each for each in plain if ("origin", other.encode()) in each.headers]
            assert mirrored == of_partition(number, with_origin(other, 300))
            made_here = [each for each in plain if each not in mirrored]
            assert made_here == of_partition(number, made_in(own, 300))


def of_partition(number: int, records: list[Record]) -> list[Record]:
    return [each for each in records if each.partition == number]


def with_origin(name: str, count: int) -> list[Record]:
    return [
        each if each.headers else each._replace(headers=(("origin", name.encode()),))
        for each in made_in(name, count)
    ]


def aborted_and_committed(kafka: ClusterClient) -> None:
    """A record in each partition that was taken back, and one that was not."""
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "transactional.id": "mirrored", "log_level": 0}
    )
    producer.init_transactions(DEADLINE_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, end.__name__.encode(), b"transaction", partition)
        assert producer.flush(DEADLINE_S) == 0
        end(DEADLINE_S)
