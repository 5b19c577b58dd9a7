"""Stock clients are held to the broker's access control lists, as Kafka does."""

import gc
import json
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from kafka.protocol.admin.acl import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.admin.groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.broker_thread import BrokerThread
from tests.support.kafka.guarded_broker import (
    ADMIN_HOST,
    ANONYMOUS,
    CLUSTER,
    EVERYTHING_FOR_ADMIN,
    GuardedBroker,
    acl,
    acl_filter,
)
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.kafka.raw_connection import (
    ACKS_LEADER,
    RawConnection,
    batch_of,
)
from tests.support.processes.waiting import DEADLINE_S, until

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC_FORBIDDEN, GROUP_FORBIDDEN, CLUSTER_FORBIDDEN = 29, 30, 31
SECURITY_DISABLED = 54

EVERY_TOPIC_ACL = acl_filter(TOPIC)
ANY_FILTER = DeleteAclsRequest.DeleteAclsFilter(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    options = ("--group-initial-rebalance-delay-ms", "0")
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "log", *options) as broker:
        yield broker.serve_guarded()


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: GuardedBroker) -> str:
    name = str(request.node.name).replace("[", "-").replace("]", "")
    broker.make_topic(name)
    return name


@pytest.fixture
def client(broker: GuardedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.client_servers})


def refused(result: Any) -> int:
    """Return the error code of a failed request of confluent-kafka."""
    with pytest.raises(KafkaException) as caught:
        result.result(DEADLINE_S)
    return int(caught.value.args[0].code())


def error_code(result: Any) -> int:
    """Return the error code of a topic or a message of confluent-kafka."""
    error = result.error() if callable(result.error) else result.error
    return int(error.code())


def describe_code(servers: str) -> int:
    """Return the error code of DescribeAcls, which confluent-kafka does not report."""
    wanted = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with RawConnection(servers) as connection:
        answer = connection.ask(wanted, DescribeAclsResponse, 3)
    assert answer.resources == []
    return int(answer.error_code)


def send(broker: GuardedBroker, topic: str, value: bytes, **settings: Any) -> int:
    """Produce a record as a client; returns the error code."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": broker.client_servers, **settings})
    producer.produce(
        topic, value, on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    assert producer.flush(DEADLINE_S) == 0
    return codes[0]


def test_acls_are_stored_described_and_deleted(broker: GuardedBroker) -> None:
    admin, name = broker.admin, "acls-of-mine"
    stored = [
        acl(TOPIC, name, READ, principal="User:alice", host="*"),
        acl(TOPIC, name, WRITE, principal="User:bob", permission=AclPermissionType.DENY),
        acl(TOPIC, name, READ, pattern=ResourcePatternType.PREFIXED),
    ]
    broker.add(*stored)
    broker.add(*stored)

    def find(pattern: ResourcePatternType, principal: str | None = None) -> list[AclBinding]:
        wanted = acl_filter(TOPIC, name, pattern, principal)
        found: list[AclBinding] = admin.describe_acls(wanted).result(DEADLINE_S)
        return sorted(found, key=str)

    assert find(ResourcePatternType.ANY) == sorted(stored, key=str)
    # `*` of the administrator covers the topic as well.
    assert len(find(ResourcePatternType.MATCH)) == len(stored) + 1
    assert find(ResourcePatternType.ANY, "User:alice") == [stored[0]]
    (deleted,) = admin.delete_acls([acl_filter(TOPIC, name)]).values()
    assert sorted(deleted.result(DEADLINE_S), key=str) == sorted(stored, key=str)
    assert find(ResourcePatternType.ANY) == []


def test_acls_survive_a_restart_and_are_private(tmp_path: Any) -> None:
    with GuardedBroker(tmp_path / "log") as broker:
        broker.serve_guarded()
        found = broker.admin.describe_acls(acl_filter()).result(DEADLINE_S)
        assert sorted(found, key=str) == sorted(EVERYTHING_FOR_ADMIN, key=str)
        assert (tmp_path / "log" / "acls.json").stat().st_mode & 0o777 == 0o600


def test_kafka_python_describes_acls(broker: GuardedBroker) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        found, _error = admin.describe_acls(
            ACLFilter(
                principal=ANONYMOUS,
                host=ADMIN_HOST,
                operation=ACLOperation.ANY,
                permission_type=ACLPermissionType.ANY,
                resource_pattern=ResourcePatternFilter(
                    PythonResourceType.ANY, None, pattern_type=ACLResourcePatternType.ANY
                ),
            )
        )
    assert {each.resource_pattern.resource_name for each in found} == {"*", CLUSTER}


def test_without_an_authorizer_acls_are_refused(broker: GuardedBroker, tmp_path: Any) -> None:
    with BrokerProcess(tmp_path / "log") as open_broker:
        open_broker.serve()
        admin = AdminClient({"bootstrap.servers": open_broker.bootstrap_servers})
        assert describe_code(open_broker.bootstrap_servers) == SECURITY_DISABLED
        (created,) = admin.create_acls([acl(TOPIC, "*", READ)]).values()
        assert refused(created) == SECURITY_DISABLED
        (deleted,) = admin.delete_acls([EVERY_TOPIC_ACL]).values()
        assert refused(deleted) == SECURITY_DISABLED
        assert "request failed" not in open_broker.output


def test_a_refused_acl_request_keeps_no_connection_in_memory(tmp_path: Any) -> None:
    with BrokerThread(tmp_path / "log", "PLAINTEXT") as open_broker:
        with RawConnection(open_broker.bootstrap("PLAINTEXT")) as connection:
            request = DeleteAclsRequest(filters=[ANY_FILTER])
            (result,) = connection.ask(request, DeleteAclsResponse, 3).filter_results
            assert result.error_code == SECURITY_DISABLED
            (served,) = map(weakref.ref, open_broker.connections("PLAINTEXT"))
        until(lambda: (gc.collect(), served())[1] is None, "the connection is freed")


def test_a_client_writes_only_what_it_may(broker: GuardedBroker, topic: str) -> None:
    with RawConnection(broker.client_servers) as connection:
        connection.produce(topic, batch_of(b"1"), acks=ACKS_LEADER)
        assert connection.produced()[1] == TOPIC_FORBIDDEN
        broker.add(acl(TOPIC, topic, WRITE))
        connection.produce(topic, batch_of(b"2"), acks=ACKS_LEADER)
        assert connection.produced()[1:] == (0, 0)
        # By now the connection knows the partition; a new denial must reach it all the same.
        broker.add(acl(TOPIC, topic, WRITE, permission=AclPermissionType.DENY))
        connection.produce(topic, batch_of(b"3"), acks=ACKS_LEADER)
        assert connection.produced()[1] == TOPIC_FORBIDDEN
        connection.produce("no-such-topic", batch_of(b"4"), acks=ACKS_LEADER)
        assert connection.produced()[1] == TOPIC_FORBIDDEN, "whether it exists is not revealed"


def test_a_client_reads_only_what_it_may(broker: GuardedBroker, topic: str) -> None:
    with RawConnection(broker.bootstrap_servers) as admin:
        admin.produce(topic, batch_of(b"secret"), acks=ACKS_LEADER)
        assert admin.produced()[1] == 0
    with RawConnection(broker.client_servers) as connection:
        connection.fetch(topic, 0)
        answer = connection.fetched()
        assert (answer.error_code, answer.data) == (TOPIC_FORBIDDEN, b"")
        permission = acl(TOPIC, topic[:10], READ, pattern=ResourcePatternType.PREFIXED)
        broker.add(permission)
        connection.fetch(topic, 0)
        assert [each.value for each in connection.fetched().records] == [b"secret"]
        broker.add(acl(TOPIC, topic, READ, permission=AclPermissionType.DENY))
        connection.fetch(topic, 0)
        assert connection.fetched().error_code == TOPIC_FORBIDDEN


def test_a_waiting_fetch_ends_without_records_once_reading_is_denied(
    broker: GuardedBroker, topic: str
) -> None:
    broker.add(acl(TOPIC, topic, READ))
    with (
        RawConnection(broker.client_servers) as reader,
        RawConnection(broker.bootstrap_servers) as admin,
    ):
        reader.fetch(topic, 0, max_wait_ms=60_000)
        broker.add(acl(TOPIC, topic, READ, permission=AclPermissionType.DENY))
        admin.produce(topic, batch_of(b"secret"), acks=ACKS_LEADER)
        assert reader.fetched().error_code == TOPIC_FORBIDDEN


def test_hidden_topics_are_not_listed(
    broker: GuardedBroker, client: AdminClient, topic: str
) -> None:
    assert topic in broker.admin.list_topics(timeout=DEADLINE_S).topics
    assert topic not in client.list_topics(timeout=DEADLINE_S).topics
    named = client.list_topics(topic, timeout=DEADLINE_S).topics[topic]
    assert error_code(named) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert not named.partitions
    broker.add(acl(TOPIC, topic, DESCRIBE))
    assert topic in client.list_topics(timeout=DEADLINE_S).topics
    assert len(client.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 1


@pytest.mark.parametrize("version", range(13))
def test_every_version_of_metadata_hides_topics(
    broker: GuardedBroker, topic: str, version: int
) -> None:
    wanted: list[Any] | None = None if version else []
    with RawConnection(broker.client_servers) as connection:
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        names = {t.name for t in connection.ask(request, MetadataResponse, version).topics}
        named = MetadataRequest.MetadataRequestTopic(name="no-such-topic")
        request = MetadataRequest(topics=[named], allow_auto_topic_creation=True)
        (found,) = connection.ask(request, MetadataResponse, version).topics
    assert not names & {topic, "no-such-topic"}
    assert (found.name, found.error_code, found.partitions) == (
        "no-such-topic",
        TOPIC_FORBIDDEN,
        [],
    )


def test_topics_are_created_on_demand_only_with_the_permission(broker: GuardedBroker) -> None:
    name = "created-on-demand"
    broker.add(acl(TOPIC, name, WRITE))
    with RawConnection(broker.client_servers) as connection:
        named = MetadataRequest.MetadataRequestTopic(name=name)
        request = MetadataRequest(topics=[named], allow_auto_topic_creation=True)
        (found,) = connection.ask(request, MetadataResponse, 9).topics
        assert found.error_code == TOPIC_FORBIDDEN
        assert name not in broker.admin.list_topics(timeout=DEADLINE_S).topics
        broker.add(acl(TOPIC, name, AclOperation.CREATE))
        (found,) = connection.ask(request, MetadataResponse, 9).topics
        assert (found.error_code, len(found.partitions)) == (0, 1)


def test_an_idempotent_producer_needs_write_on_a_topic(broker: GuardedBroker, topic: str) -> None:
    broker.add(acl(TOPIC, topic, WRITE))
    assert send(broker, topic, b"1", **{"enable.idempotence": True}) == 0


def test_kafka_python_is_held_to_its_acls(broker: GuardedBroker, topic: str) -> None:
    group = f"{topic}-readers"
    broker.add(acl(TOPIC, topic, DESCRIBE))
    servers = broker.client_servers
    with (
        closing(KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)) as producer,
        pytest.raises(TopicAuthorizationFailedError),
    ):
        producer.send(topic, b"1").get(DEADLINE_S)
    broker.add(acl(TOPIC, topic, WRITE), acl(TOPIC, topic, READ))
    with closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        producer.send(topic, b"2").get(DEADLINE_S)

    def consumer() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(DEADLINE_S * 1000),
        )

    with closing(consumer()) as forbidden, pytest.raises(GroupAuthorizationFailedError):
        next(forbidden)
    broker.add(acl(GROUP, group, READ))
    with closing(consumer()) as allowed:
        assert next(allowed).value == b"2"
        allowed.commit()


def test_confluent_kafka_is_held_to_its_acls(broker: GuardedBroker, topic: str) -> None:
    group = f"{topic}-readers"
    broker.add(acl(TOPIC, topic, DESCRIBE))
    assert send(broker, topic, b"1") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    broker.add(acl(TOPIC, topic, WRITE), acl(TOPIC, topic, READ))
    assert send(broker, topic, b"2") == 0
    settings = {
        "bootstrap.servers": broker.client_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(settings)) as forbidden:
        forbidden.subscribe([topic])
        message = forbidden.poll(DEADLINE_S)
        assert message is not None
        assert error_code(message) == KafkaError.GROUP_AUTHORIZATION_FAILED
    broker.add(acl(GROUP, group, READ))
    with closing(Consumer(settings)) as allowed:
        allowed.subscribe([topic])
        message = allowed.poll(DEADLINE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"2")
        allowed.commit(asynchronous=False)


def test_administration_is_refused_without_permission(
    broker: GuardedBroker, client: AdminClient, topic: str
) -> None:
    config = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (created,) = client.create_topics([NewTopic("forbidden", 1)]).values()
    (deleted,) = client.delete_topics([topic]).values()
    (described,) = client.describe_configs([config]).values()
    (acls,) = client.create_acls([acl(TOPIC, "*", AclOperation.ALL)]).values()
    (removed,) = client.delete_acls([EVERY_TOPIC_ACL]).values()
    assert refused(created) == TOPIC_FORBIDDEN
    assert refused(deleted) == TOPIC_FORBIDDEN
    assert refused(described) == TOPIC_FORBIDDEN
    assert refused(acls) == CLUSTER_FORBIDDEN
    assert refused(removed) == CLUSTER_FORBIDDEN
    assert describe_code(broker.client_servers) == CLUSTER_FORBIDDEN
    (group,) = client.delete_consumer_groups(["readers"]).values()
    assert refused(group) == GROUP_FORBIDDEN
    assert topic in broker.admin.list_topics(timeout=DEADLINE_S).topics
    broker.add(acl(TOPIC, topic, AclOperation.DELETE), acl(TOPIC, "allowed", AclOperation.CREATE))
    (created,) = client.create_topics([NewTopic("allowed", 1)]).values()
    created.result(DEADLINE_S)
    (deleted,) = client.delete_topics([topic]).values()
    deleted.result(DEADLINE_S)
    until(
        lambda: topic not in broker.admin.list_topics(timeout=DEADLINE_S).topics,
        "the topic is deleted",
    )


def test_groups_are_listed_and_described_by_permission(broker: GuardedBroker) -> None:
    with RawConnection(broker.client_servers) as connection:
        request = DescribeGroupsRequest(
            groups=["hidden", "shown"], include_authorized_operations=True
        )
        broker.add(acl(GROUP, "shown", READ))
        answer = connection.ask(request, DescribeGroupsResponse, 5)
    found = {each.group_id: (each.error_code, each.authorized_operations) for each in answer.groups}
    assert found == {
        "hidden": (GROUP_FORBIDDEN, None),
        "shown": (0, {int(READ.value), int(DESCRIBE.value)}),
    }


@pytest.mark.parametrize("is_admin", [True, False])
def test_clients_ask_what_they_may_do(broker: GuardedBroker, topic: str, is_admin: bool) -> None:
    broker.add(acl(TOPIC, topic, WRITE), acl(TOPIC, topic, AclOperation.ALTER_CONFIGS))
    servers = broker.bootstrap_servers if is_admin else broker.client_servers
    with RawConnection(servers) as connection:
        metadata = MetadataRequest(
            topics=None,
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        answer = connection.ask(metadata, MetadataResponse, 10)
        cluster = connection.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1),
            DescribeClusterResponse,
            1,
        )
    by_topic = {each.name: each.authorized_operations for each in answer.topics}
    assert by_topic[topic] == ({3, 4, 5, 6, 7, 8, 10, 11} if is_admin else {4, 8, 10, 11})
    of_cluster = {5, 7, 8, 9, 10, 11, 12} if is_admin else set()
    assert answer.authorized_operations == of_cluster
    assert cluster.authorized_operations == of_cluster


def test_without_an_authorizer_everyone_may_do_everything(tmp_path: Any) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve().make_topic("clicks")
        with RawConnection(broker.bootstrap_servers) as connection:
            request = MetadataRequest(
                topics=None,
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=True,
            )
            answer = connection.ask(request, MetadataResponse, 10)
    assert {each.name: each.authorized_operations for each in answer.topics} == {
        "clicks": {3, 4, 5, 6, 7, 8, 10, 11}
    }
    assert answer.authorized_operations is None


def test_the_command_adds_lists_and_removes_acls(broker: GuardedBroker) -> None:
    acls = logbroker_command(broker.bootstrap_servers, "acls")
    shop = ("--principal", "User:shop", "--operation", "write", "--operation", "describe")
    assert acls("add", *shop, "--topic", "orders-events", "--cluster").stderr == "added 4 ACLs\n"
    billing = ("--principal", "User:billing", "--operation", "read", "--host", "192.0.2.7")
    added = acls("add", *billing, "--topic", "orders-", "--group", "billing-", "--prefixed")
    assert (added.returncode, added.stderr) == (0, "added 2 ACLs\n")
    of_topic = acls("list", "--topic", "orders-events").stdout.splitlines()
    assert of_topic[0].split() == [
        *("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "PATTERN", "NAME")
    ]
    assert [line.split() for line in of_topic if "ANONYMOUS" not in line][1:] == [
        ["User:billing", "192.0.2.7", "allow", "read", "topic", "prefixed", "orders-"],
        ["User:shop", "*", "allow", "describe", "topic", "literal", "orders-events"],
        ["User:shop", "*", "allow", "write", "topic", "literal", "orders-events"],
    ]
    removed = acls("remove", *shop, "--topic", "orders-events")
    assert (removed.returncode, removed.stderr) == (0, "removed 2 ACLs\n")
    left = json.loads(acls("list", "--principal", "User:shop", "--json").stdout)
    assert [each["resource"] for each in left] == ["cluster", "cluster"]
    assert "no ACLs" in acls("list", "--principal", "User:nobody").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--principal", "User:a", "--operation", "read"), "no resource"),
        (("--principal", "User:a", "--topic", "t"), "--operation"),
        (("--principal", "alice", "--operation", "read", "--topic", "t"), "expected KIND:NAME"),
    ],
)
def test_the_command_names_what_is_wrong(
    broker: GuardedBroker, arguments: tuple[str, ...], message: str
) -> None:
    result = logbroker_command(broker.bootstrap_servers, "acls", "add")(*arguments)
    assert result.returncode > 0
    assert message in result.stderr
