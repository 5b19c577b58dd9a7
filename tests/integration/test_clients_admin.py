"""Stock clients administer topics: settings, partitions, deletion, the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar
from uuid import UUID

import pytest
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin import NewTopic as AiokafkaNewTopic
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from confluent_kafka import (
    Consumer,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import NewPartitions as ConfluentNewPartitions
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidConfigurationError, TopicAlreadyExistsError
from kafka.protocol.admin.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from logbroker.topic_settings import TOPIC_SETTINGS
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.stock_clients import ConfluentClient, KcatClient, sample_records
from tests.support.processes.waiting import DEADLINE_S

SETTINGS = TOPIC_SETTINGS.keys()
START_MS = 1_700_000_000_000

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = "--broker-id", "7", "--topic-config", "segment.ms=86400000"
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log", *options) as broker:
        yield broker.serve()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def confluent(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        yield admin


Aiokafka = Callable[[Callable[[AIOKafkaAdminClient], Awaitable[Result]]], Result]


@pytest.fixture
def aiokafka(broker: BrokerProcess) -> Aiokafka[Any]:
    """Runs a coroutine function with an admin client."""

    def run(use: Callable[[AIOKafkaAdminClient], Awaitable[Result]]) -> Result:
        async def with_admin() -> Result:
            admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
            await admin.start()
            try:
                return await use(admin)
            finally:
                await admin.close()

        return asyncio.run(with_admin())

    return run


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    client = ConfluentClient(broker.bootstrap_servers)
    client.produce(topic, sample_records(count, START_MS), codec="snappy", is_idempotent=True)


def watermarks(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"}
    with closing(Consumer(settings)) as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
    return low, high


# --- confluent-kafka ---


def values(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(
        DEADLINE_S
    )
    return described


def alter(admin: AdminClient, topic: str, operation: AlterConfigOpType, **entry: Any) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry(incremental_operation=operation, **entry))
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def test_confluent_describes_alters_and_resets_settings(confluent: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 2, 1, config={"retention.ms": "1000", "flush.messages": "5"})
    confluent.create_topics([new])[topic].result(DEADLINE_S)
    described = values(confluent, topic)
    assert set(described) == SETTINGS
    assert described["retention.ms"].value == "1000"
    assert not described["retention.ms"].is_default
    assert described["segment.bytes"].is_default

    alter(
        confluent,
        topic,
        AlterConfigOpType.SET,
        name="message.timestamp.type",
        value="LogAppendTime",
    )
    alter(confluent, topic, AlterConfigOpType.DELETE, name="flush.messages", value=None)
    described = values(confluent, topic)
    assert described["message.timestamp.type"].value == "LogAppendTime"
    assert described["flush.messages"].is_default
    assert described["retention.ms"].value == "1000"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "true"),
        ("retention.ms", "soon"),
        ("message.timestamp.type", "Never"),
        # No request of this broker could carry a batch of this size.
        ("max.message.bytes", str(2**31 - 1)),
    ],
)
def test_confluent_gets_errors_for_invalid_settings(
    confluent: AdminClient, topic: str, name: str, value: str
) -> None:
    with pytest.raises(KafkaException, match=name):
        confluent.create_topics([NewTopic("never", 1, 1, config={name: value})])["never"].result(
            DEADLINE_S
        )
    assert "never" not in confluent.list_topics(timeout=DEADLINE_S).topics
    plain = topic.partition("[")[0]
    if plain not in confluent.list_topics(timeout=DEADLINE_S).topics:
        confluent.create_topics([NewTopic(plain, 1, 1)])[plain].result(DEADLINE_S)
    with pytest.raises(KafkaException, match=name):
        alter(confluent, plain, AlterConfigOpType.SET, name=name, value=value)


def test_confluent_grows_a_topic(confluent: AdminClient, broker: BrokerProcess, topic: str) -> None:
    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    fill(broker, topic, 10)
    confluent.create_partitions([ConfluentNewPartitions(topic, 4)])[topic].result(DEADLINE_S)
    assert len(confluent.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 4
    assert watermarks(broker, topic) == (0, 10)
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        confluent.create_partitions([ConfluentNewPartitions(topic, 2)])[topic].result(DEADLINE_S)


def test_confluent_deletes_records(
    confluent: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    fill(broker, topic, 20)
    place = TopicPartition(topic, 0, 7)
    assert confluent.delete_records([place])[place].result(DEADLINE_S).low_watermark == 7
    assert watermarks(broker, topic) == (7, 20)
    client = ConfluentClient(broker.bootstrap_servers)
    assert [record.offset for record in client.read(topic, 7, 13)] == list(range(7, 20))
    # The batch still holds what was deleted, and its times must not be found any more.
    assert client.offset_for_time(topic, START_MS) == 7
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        confluent.delete_records([TopicPartition(topic, 0, 21)])[place].result(DEADLINE_S)


def test_confluent_deletes_and_recreates_a_topic(
    confluent: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    def topic_id() -> str:
        described = confluent.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
        return str(described.topic_id)

    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    fill(broker, topic, 10)
    first_id = topic_id()
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)

    confluent.delete_topics([topic])[topic].result(DEADLINE_S)
    assert topic not in confluent.list_topics(timeout=DEADLINE_S).topics
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        confluent.delete_topics([topic])[topic].result(DEADLINE_S)

    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    assert topic_id() != first_id
    assert watermarks(broker, topic) == (0, 0)
    fill(broker, topic, 3)
    assert watermarks(broker, topic) == (0, 3)


def test_confluent_lists_offsets_and_describes_the_cluster(
    confluent: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    fill(broker, topic, 10)
    place = TopicPartition(topic, 0)
    # librdkafka can crash if two threads look up the leader of a new topic.
    confluent.list_topics(topic, timeout=DEADLINE_S)
    found = [
        confluent.list_offsets({place: spec})[place].result(DEADLINE_S).offset
        for spec in (
            OffsetSpec.earliest(),
            OffsetSpec.latest(),
            OffsetSpec.max_timestamp(),
            OffsetSpec.for_timestamp(START_MS + 35),
        )
    ]
    assert found == [0, 10, 9, 4]

    cluster = confluent.describe_cluster().result(DEADLINE_S)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [
        (7, "127.0.0.1", broker.port)
    ]
    assert cluster.controller.id == 7
    assert cluster.cluster_id == confluent.list_topics(timeout=DEADLINE_S).cluster_id


# --- kafka-python ---


def test_kafka_python_describes_and_alters_settings(
    kafka_python: KafkaAdminClient, topic: str
) -> None:
    kafka_python.create_topics({topic: {"num_partitions": 1, "configs": {"retention.ms": "1000"}}})

    def described() -> dict[str, Any]:
        resource = PythonResource(PythonResourceType.TOPIC, topic)
        found = kafka_python.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    assert set(described()) == SETTINGS
    assert described()["retention.ms"] == "1000"
    for is_incremental, retention_ms in ((True, "2000"), (False, "3000")):
        kafka_python.alter_configs(
            [PythonResource(PythonResourceType.TOPIC, topic, {"retention.ms": retention_ms})],
            incremental=is_incremental,
        )
        assert described()["retention.ms"] == retention_ms
    refused = kafka_python.alter_configs(
        [PythonResource(PythonResourceType.TOPIC, topic, {"remote.storage.enable": "true"})],
        raise_on_unknown=False,
    )
    assert "remote.storage.enable" in str(refused)
    with pytest.raises(InvalidConfigurationError):
        kafka_python.create_topics({"never": {"configs": {"remote.storage.enable": "true"}}})
    assert "never" not in kafka_python.list_topics()


def test_kafka_python_grows_trims_deletes_and_remakes_a_topic(
    kafka_python: KafkaAdminClient, broker: BrokerProcess, topic: str
) -> None:
    def topic_id() -> UUID:
        (described,) = kafka_python.describe_topics([topic])
        return UUID(str(described["topic_id"]))

    kafka_python.create_topics([topic])
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python.create_topics([topic])
    first_id = topic_id()
    (by_id,) = kafka_python.describe_topics([first_id])
    assert by_id["name"] == topic
    kafka_python.create_partitions({topic: 3})
    (described,) = kafka_python.describe_topics([topic])
    assert len(described["partitions"]) == 3

    fill(broker, topic, 10)
    place = PythonPartition(topic, 0)
    trimmed = kafka_python.delete_records({place: 4})
    assert trimmed[place]["low_watermark"] == 4
    assert watermarks(broker, topic) == (4, 10)

    kafka_python.delete_topics([topic])
    assert topic not in kafka_python.list_topics()
    kafka_python.create_topics([topic])
    assert topic_id() != first_id
    assert watermarks(broker, topic) == (0, 0)


def test_kafka_python_describes_the_cluster_and_its_disk(
    kafka_python: KafkaAdminClient, broker: BrokerProcess, topic: str
) -> None:
    kafka_python.create_topics([topic])
    fill(broker, topic, 10)
    cluster = kafka_python.describe_cluster()
    assert cluster["controller_id"] == 7
    assert [(node["broker_id"], node["port"]) for node in cluster["brokers"]] == [(7, broker.port)]
    (described,) = kafka_python.describe_log_dirs()
    (folder,) = described["log_dirs"]
    sizes = {
        (each["name"], partition["partition_index"]): partition["partition_size"]
        for each in folder["topics"]
        for partition in each["partitions"]
    }
    segment = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    assert sizes[topic, 0] == segment.stat().st_size


# --- what Java's kafka-configs asks ---


def resource_of(kind: int, name: str, keys: list[str] | None = None) -> Any:
    return DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )


def described_by(broker: BrokerProcess, *resources: Any, with_synonyms: bool = True) -> list[Any]:
    request = DescribeConfigsRequest(
        resources=list(resources), include_synonyms=with_synonyms, include_documentation=False
    )
    with RawConnection(broker.bootstrap_servers) as connection:
        results: list[Any] = connection.ask(request, DescribeConfigsResponse, 4).results
    return results


def changed_by(broker: BrokerProcess, topic: str, *changes: tuple[str, int, str | None]) -> int:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    resource = kind(
        resource_type=2,
        resource_name=topic,
        configs=[
            kind.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.ask(request, IncrementalAlterConfigsResponse, 1)
    (outcome,) = answer.responses
    return int(outcome.error_code)


def test_cluster_wide_broker_defaults_are_empty(broker: BrokerProcess) -> None:
    (found,) = described_by(broker, resource_of(4, ""))
    assert (found.error_code, found.resource_name, found.configs) == (0, "", [])


def test_settings_have_the_synonyms_that_determine_them(
    confluent: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    new = NewTopic(topic, 1, 1, config={"retention.ms": "1000"})
    confluent.create_topics([new])[topic].result(DEADLINE_S)
    wanted = resource_of(2, topic, ["retention.ms", "segment.ms", "local.retention.ms"])

    (found,) = described_by(broker, wanted)
    assert {
        entry.name: [(each.name, each.value, each.source) for each in entry.synonyms]
        for entry in found.configs
    } == {
        "retention.ms": [
            ("retention.ms", "1000", 1),
            ("log.retention.ms", str(7 * 86_400_000), 5),
        ],
        # The broker of this test was started with another default.
        "segment.ms": [("log.roll.ms", "86400000", 4), ("log.roll.ms", "604800000", 5)],
        "local.retention.ms": [],
    }
    types = {entry.name: (entry.config_source, entry.config_type) for entry in found.configs}
    assert types == {"retention.ms": (1, 5), "segment.ms": (4, 5), "local.retention.ms": (5, 5)}

    (plain,) = described_by(broker, wanted, with_synonyms=False)
    assert all(entry.synonyms == [] for entry in plain.configs)


def test_an_empty_list_of_settings_asks_for_all(
    confluent: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    (found,) = described_by(broker, resource_of(2, topic, []))
    assert {entry.name for entry in found.configs} == SETTINGS


def test_a_broker_describes_its_settings(broker: BrokerProcess) -> None:
    (found,) = described_by(broker, resource_of(4, "7"))
    values = {entry.name: (entry.value, entry.config_source) for entry in found.configs}
    assert len(values) == len(found.configs)
    address = f"PLAINTEXT://127.0.0.1:{broker.port}"
    assert values["advertised.listeners"] == values["listeners"] == (address, 4)
    assert values["broker.id"] == values["node.id"] == ("7", 4)
    assert values["log.dirs"] == (str(broker.data_dir), 4)
    assert values["log.roll.ms"] == ("86400000", 4)
    assert values["log.retention.ms"] == (str(7 * 86_400_000), 5)
    assert values["auto.create.topics.enable"] == ("true", 4)
    assert values["connections.max.idle.ms"] == ("600000", 5)


def test_resources_without_settings_are_described_as_in_kafka(broker: BrokerProcess) -> None:
    loggers, metrics, group, unknown = described_by(
        broker,
        resource_of(8, "7"),
        resource_of(16, "subscription"),
        resource_of(32, "group"),
        resource_of(64, "x"),
    )
    assert [each.error_code for each in (loggers, metrics, group, unknown)] == [0, 0, 0, 42]
    levels = {entry.name: entry.value for entry in loggers.configs}
    assert levels["root"] == levels["logbroker.broker"] == "INFO"
    assert metrics.configs == group.configs == []


def test_incremental_changes_are_checked_as_in_kafka(
    confluent: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    twice = ("retention.ms", 0, "1"), ("retention.ms", 0, "2")
    assert changed_by(broker, topic, *twice) == 42
    assert changed_by(broker, topic, ("no.such.setting", 1, None)) == 0
    assert changed_by(broker, topic, ("no.such.setting", 0, "1")) == 40
    assert changed_by(broker, topic, ("retention.ms", 2, "1")) == 40
    throttled = "leader.replication.throttled.replicas"
    assert changed_by(broker, topic, (throttled, 2, "0:7,1:7")) == 0
    assert changed_by(broker, topic, (throttled, 2, "1:7,2:7")) == 0
    assert changed_by(broker, topic, (throttled, 3, "0:7")) == 0
    assert values(confluent, topic)[throttled].value == "1:7,2:7"


# --- aiokafka ---


def test_aiokafka_administers_a_topic(
    aiokafka: Aiokafka[Any], broker: BrokerProcess, topic: str
) -> None:
    async def create(admin: AIOKafkaAdminClient) -> Any:
        new = AiokafkaNewTopic(topic, 1, 1, topic_configs={"retention.ms": "1000"})
        return [error[1] for error in (await admin.create_topics([new])).topic_errors]

    async def grow(admin: AIOKafkaAdminClient) -> int:
        await admin.create_partitions({topic: NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        return len(described["partitions"])

    async def trim(admin: AIOKafkaAdminClient) -> dict[Any, int]:
        low_watermarks: dict[Any, int] = await admin.delete_records(
            {AiokafkaPartition(topic, 0): RecordsToDelete(before_offset=4)}
        )
        return low_watermarks

    async def delete(admin: AIOKafkaAdminClient) -> list[str]:
        await admin.delete_topics([topic])
        left: list[str] = await admin.list_topics()
        return left

    assert aiokafka(create) == [0]
    assert aiokafka(create) == [36]  # TOPIC_ALREADY_EXISTS
    assert aiokafka(grow) == 3
    fill(broker, topic, 10)
    assert aiokafka(trim) == {AiokafkaPartition(topic, 0): 4}
    assert watermarks(broker, topic) == (4, 10)
    assert topic not in aiokafka(delete)
    assert aiokafka(create) == [0]
    assert watermarks(broker, topic) == (0, 0)


def test_aiokafka_describes_and_alters_settings(aiokafka: Aiokafka[Any], topic: str) -> None:
    def resource(**settings: str) -> AiokafkaResource:
        return AiokafkaResource(AiokafkaResourceType.TOPIC, topic, settings)

    async def change(admin: AIOKafkaAdminClient) -> tuple[dict[str, str], list[tuple[int, str]]]:
        await admin.create_topics([AiokafkaNewTopic(topic, 1, 1)])
        await admin.alter_configs([resource(**{"retention.ms": "4000"})])
        (described,) = await admin.describe_configs([resource()])
        (refused,) = await admin.alter_configs([resource(**{"remote.storage.enable": "true"})])
        ((_, _, _, _, entries),) = described.resources
        return (
            {entry[0]: entry[1] for entry in entries},
            [(each[0], each[1]) for each in refused.resources],
        )

    described, refused = aiokafka(change)
    assert set(described) == SETTINGS
    assert described["retention.ms"] == "4000"
    ((code, message),) = refused
    assert code == 40  # INVALID_CONFIG
    assert "remote.storage.enable" in message


def test_aiokafka_describes_the_cluster(aiokafka: Aiokafka[Any], broker: BrokerProcess) -> None:
    async def describe(admin: AIOKafkaAdminClient) -> dict[str, Any]:
        described: dict[str, Any] = await admin.describe_cluster()
        return described

    cluster = aiokafka(describe)
    assert cluster["controller_id"] == 7
    assert [(node["node_id"], node["port"]) for node in cluster["brokers"]] == [(7, broker.port)]


# --- kcat ---


def test_kcat_lists_the_cluster(broker: BrokerProcess, confluent: AdminClient, topic: str) -> None:
    confluent.create_topics([NewTopic(topic, 3, 1)])[topic].result(DEADLINE_S)
    described = KcatClient(broker.bootstrap_servers).run("-L", "-t", topic)
    assert f"broker 7 at {broker.bootstrap_servers} (controller)" in described
    assert f'topic "{topic}" with 3 partitions' in described
