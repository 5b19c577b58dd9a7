"""Three brokers form one cluster: a change at one applies at all."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.protocol.admin.topics import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse

from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.partition_clients import PARTITION_CLIENTS
from tests.support.kafka.raw_connection import ACKS_ALL, RawConnection, batch_of
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
WAIT_MS = 300_000


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: SharedZooKeeper
) -> Iterator[BrokerCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with BrokerCluster(folder, zookeeper.fresh_chroot(), session_s=30) as cluster:
        yield cluster.serve()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return "".join(each if each.isalnum() else "-" for each in str(request.node.name))


def admin_at(cluster: BrokerCluster, broker_id: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.brokers[broker_id].bootstrap_servers})


def has_folders(broker: BrokerProcess, pattern: str, names: set[str]) -> bool:
    """Whether the folders of `pattern` in the data directory are those of `names`."""
    return {path.name for path in broker.data_dir.glob(pattern)} == names


def error_code_of(asked: Any) -> int:
    """The error code that the one future of an admin call ends with."""
    (future,) = asked.values()
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)
    return int(refused.value.args[0].code())


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_topic_created_at_any_broker_is_spread_over_all(
    cluster: BrokerCluster, topic: str, asked: int
) -> None:
    cluster.brokers[asked].make_topic(topic, 6)
    leaders = cluster.first_leaders_at(asked, topic)
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    cluster.until_leaders(topic, leaders)
    for broker_id, broker in cluster.brokers.items():
        wanted = {f"{topic}-{n}" for n, leader in enumerate(leaders) if leader == broker_id}
        until(partial(has_folders, broker, f"{topic}-*", wanted), "each broker has its own folders")


@pytest.mark.parametrize("library", PARTITION_CLIENTS)
def test_stock_clients_reach_every_partition_through_one_broker(
    cluster: BrokerCluster, topic: str, library: str
) -> None:
    cluster.brokers[1].make_topic(topic, 6)
    cluster.until_leaders(topic, cluster.first_leaders_at(1, topic))
    client = PARTITION_CLIENTS[library](cluster.brokers[2].bootstrap_servers)
    values = {n: [b"%d in %d" % (each, n) for each in range(50)] for n in range(6)}
    client.produce(topic, values)
    assert client.read(topic, dict.fromkeys(range(6), 50)) == values


def test_every_broker_returns_all_brokers_and_one_controller(cluster: BrokerCluster) -> None:
    answers = [admin_at(cluster, number).list_topics(timeout=DEADLINE_S) for number in (1, 2, 3)]
    assert len({each.cluster_id for each in answers}) == 1
    assert {each.controller_id for each in answers} < {1, 2, 3}
    for each in answers:
        addresses = {number: f"{node.host}:{node.port}" for number, node in each.brokers.items()}
        assert addresses == {
            number: broker.bootstrap_servers for number, broker in cluster.brokers.items()
        }


def asked_of(connection: RawConnection, topic: str, partition: int) -> list[int]:
    """The error codes of every kind of request that only a leader answers."""
    connection.produce(topic, batch_of(b"one"), acks=ACKS_ALL, partition=partition)
    connection.fetch(topic, 0, partition=partition)
    codes = [connection.produced()[1], connection.fetched().error_code]
    time = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=-1
    )
    times = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[time])
    listed = connection.ask(
        ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[times]), ListOffsetsResponse, 5
    )
    codes.append(listed.topics[0].partitions[0].error_code)
    epoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=-1, leader_epoch=0
    )
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[epoch])
    ends = connection.ask(
        OffsetForLeaderEpochRequest(replica_id=-1, topics=[epochs]), OffsetForLeaderEpochResponse, 3
    )
    codes.append(ends.topics[0].partitions[0].error_code)
    before = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(
        partition_index=partition, offset=0
    )
    records = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[before])
    deleted = connection.ask(
        DeleteRecordsRequest(topics=[records], timeout_ms=30_000), DeleteRecordsResponse, 1
    )
    codes.append(deleted.topics[0].partitions[0].error_code)
    return codes


def test_a_broker_distinguishes_partitions_of_others_from_unknown_ones(
    cluster: BrokerCluster, topic: str
) -> None:
    cluster.brokers[1].make_topic(topic, 3)
    cluster.until_leaders(topic, cluster.first_leaders_at(1, topic))
    with cluster.connection(1) as connection:
        own, others = (cluster.partition_led_by(number, topic) for number in (1, 2))
        assert asked_of(connection, topic, own) == [0] * 5
        assert asked_of(connection, topic, others) == [NOT_LEADER_OR_FOLLOWER] * 5
        assert asked_of(connection, topic, 3) == [UNKNOWN_TOPIC_OR_PARTITION] * 5
        assert asked_of(connection, "absent", 0) == [UNKNOWN_TOPIC_OR_PARTITION] * 5


def test_a_topic_deleted_at_one_broker_is_deleted_at_all(
    cluster: BrokerCluster, topic: str
) -> None:
    cluster.brokers[1].make_topic(topic, 3)
    cluster.until_leaders(topic, cluster.first_leaders_at(1, topic))
    partition = cluster.partition_led_by(2, topic)
    with cluster.connection(2) as waiting:
        waiting.fetch(topic, 0, max_wait_ms=WAIT_MS, partition=partition)
        admin = admin_at(cluster, 1)
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
        assert waiting.fetched().error_code == UNKNOWN_TOPIC_OR_PARTITION
    until(lambda: not cluster.leaders_at(3, topic), "broker 3 knows")
    for broker in cluster.brokers.values():
        until(partial(has_folders, broker, f"{topic}-?", set()), "folders go")


def test_a_topic_grown_at_one_broker_is_served_by_all(cluster: BrokerCluster, topic: str) -> None:
    cluster.brokers[1].make_topic(topic, 2)
    before = cluster.first_leaders_at(1, topic)
    admin = admin_at(cluster, 3)
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(DEADLINE_S)
    until(lambda: len(cluster.leaders_at(3, topic)) == 8, "broker 3 knows the new ones")
    after = cluster.leaders_at(3, topic)
    assert after[:2] == before
    assert set(after[2:]) == {1, 2, 3}
    cluster.until_leaders(topic, after)
    values = {n: [b"one"] for n in range(8)}
    client = PARTITION_CLIENTS["confluent-kafka"](cluster.bootstrap_servers)
    client.produce(topic, values)
    assert client.read(topic, dict.fromkeys(range(8), 1)) == values


def test_a_setting_changed_at_one_broker_applies_at_another(
    cluster: BrokerCluster, topic: str
) -> None:
    cluster.brokers[1].make_topic(topic, 3)
    cluster.until_leaders(topic, cluster.first_leaders_at(1, topic))
    partition = cluster.partition_led_by(2, topic)
    cluster.brokers[3].change_topic(topic, max_message_bytes="100")

    def code() -> int:
        with cluster.connection(2) as connection:
            connection.produce(topic, batch_of(b"." * 200), acks=ACKS_ALL, partition=partition)
            return connection.produced()[1]

    until(lambda: code() == MESSAGE_TOO_LARGE, "the leader has the setting")


def test_one_of_two_concurrent_creations_gets_topic_already_exists(
    cluster: BrokerCluster, topic: str
) -> None:
    def create(broker_id: int) -> int:
        admin = admin_at(cluster, broker_id)
        asked = admin.create_topics([NewTopic(topic, 3, 1)])
        try:
            asked[topic].result(DEADLINE_S)
        except KafkaException as refused:
            return int(refused.args[0].code())
        return 0

    with ThreadPoolExecutor(3) as three:
        codes = sorted(three.map(create, cluster.brokers))
    assert codes == [0, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_ALREADY_EXISTS]
    cluster.until_leaders(topic, cluster.first_leaders_at(1, topic))


def test_assignments_may_name_only_live_brokers(cluster: BrokerCluster, topic: str) -> None:
    admin = admin_at(cluster, 1)
    by_hand = NewTopic(topic, 3, replica_assignment=[[3], [3], [1]])
    admin.create_topics([by_hand])[topic].result(DEADLINE_S)
    cluster.until_leaders(topic, [3, 3, 1])
    more = NewPartitions(topic, 5, replica_assignment=[[2], [3]])
    admin.create_partitions([more])[topic].result(DEADLINE_S)
    cluster.until_leaders(topic, [3, 3, 1, 2, 3])

    strange = NewTopic(f"{topic}-strange", 2, replica_assignment=[[3], [4]])
    refused = error_code_of(admin.create_topics([strange]))
    assert refused == KafkaError.INVALID_REPLICA_ASSIGNMENT
    twofold = NewTopic(f"{topic}-twofold", 1, replica_assignment=[[1, 2]])
    assert error_code_of(admin.create_topics([twofold])) == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_more_than_one_replica_is_rejected_for_any_number_of_brokers(
    cluster: BrokerCluster, topic: str
) -> None:
    admin = admin_at(cluster, 1)
    assert (
        error_code_of(admin.create_topics([NewTopic(topic, 3, 2)]))
        == KafkaError.INVALID_REPLICATION_FACTOR
    )


def test_no_broker_exceeds_its_maximum_of_partitions(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    with BrokerCluster(
        tmp_path, zookeeper.fresh_chroot(), *("--partitions-max", "4"), count=2, session_s=30
    ) as cluster:
        cluster.serve()
        admin = admin_at(cluster, 1)
        assert error_code_of(admin.create_topics([NewTopic("large", 9, 1)])) == (
            KafkaError.INVALID_PARTITIONS
        )
        cluster.brokers[1].make_topic("fits", 8)
        cluster.until_leaders("fits", cluster.first_leaders_at(1, "fits"))
        admin = admin_at(cluster, 2)
        assert error_code_of(admin.create_topics([NewTopic("more", 1, 1)])) == (
            KafkaError.INVALID_PARTITIONS
        )


def test_producer_ids_of_all_brokers_are_different(cluster: BrokerCluster) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
    )
    given = []
    for broker_id in cluster.brokers:
        with cluster.connection(broker_id) as connection:
            answers = [connection.ask(request, InitProducerIdResponse, 3) for _ in range(10)]
        given += [answer.producer_id for answer in answers]
    assert len(set(given)) == 30


def test_a_topic_requested_at_every_broker_is_created_once(
    cluster: BrokerCluster, topic: str
) -> None:
    def ask(broker_id: int) -> tuple[int, UUID]:
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        with cluster.connection(broker_id) as connection:
            (found,) = connection.ask(request, MetadataResponse, 10).topics
        return found.error_code, found.topic_id

    with ThreadPoolExecutor(3) as three:
        answers = set(three.map(ask, cluster.brokers))
    # Who was too late, and has not heard of the topic yet, has its client ask again.
    assert {code for code, _ in answers} <= {0, LEADER_NOT_AVAILABLE}
    cluster.until_leaders(topic, cluster.first_leaders_at(1, topic))
    assert len({ask(broker_id) for broker_id in cluster.brokers}) == 1
