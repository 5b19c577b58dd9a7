"""Mirror, audit, raw client and Spark source on a broker with SASL_SSL and ACLs."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, ResourceType

from logbroker.client.errors import NotAuthorized
from logbroker.client.raw import LATEST, RawCluster, RawReader, TopicPartition
from tests.integration.test_broker_sasl import PASSWORD, USER, SaslBroker
from tests.support.kafka.guarded_broker import ANONYMOUS, acl
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.kafka.mirrored_clusters import READY, ClusterClient, Record, until_copied
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 50
DESCRIBE, READ, WRITE = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE


class OwnClients:
    """A broker where only the administrator may do everything, and properties of its user."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.broker = SaslBroker(folder, authorizer=True, super_users=ANONYMOUS)
        self.administrator = ClusterClient(self.broker.bootstrap("PLAINTEXT"))
        self.file = folder / "client.properties"
        self.file.write_text(
            "".join(
                f"{name}={value}\n"
                for name, value in self.properties.items()
                if name != "bootstrap.servers"
            )
        )

    @property
    def servers(self) -> str:
        return self.broker.bootstrap("SASL_SSL")

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties that docs/broker-security.md shows."""
        return self.broker.librdkafka("SCRAM-SHA-512")

    def make_topic(self, topic: str, value: bytes = b"value") -> None:
        """Create a topic with `COUNT` records."""
        now_ms = time.time_ns() // 1_000_000
        self.administrator.make_topic(topic, 1)
        self.administrator.write(topic, [Record(0, now_ms, None, value)] * COUNT)

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        wanted: list[AclBinding] = [
            acl(kind, name, operation, principal=f"User:{USER}", host="*")
            for operation in operations
        ]
        for result in self.broker.admin.create_acls(wanted).values():
            result.result(DEADLINE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnClients]:
    clients = OwnClients(tmp_path_factory.mktemp("own-clients") / "here")
    with clients.broker:
        yield clients


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OwnClients]:
    clients = OwnClients(tmp_path / "there")
    with clients.broker:
        yield clients


def java_properties(cluster: OwnClients, mechanism: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": cluster.servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.broker.authority.certificate),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("dialect", ["librdkafka", "java"])
def test_the_raw_client_reads_what_its_user_may(
    cluster: OwnClients, dialect: str, mechanism: str
) -> None:
    topic = f"raw-{dialect}-{mechanism}"
    cluster.make_topic(topic)
    properties = (
        cluster.broker.librdkafka(mechanism)
        if dialect == "librdkafka"
        else java_properties(cluster, mechanism)
    )
    place = TopicPartition(topic, 0)
    with pytest.raises(NotAuthorized), RawCluster(properties) as raw:
        raw.offsets({place: LATEST})
    cluster.allow(ResourceType.TOPIC, topic, READ)
    with RawCluster(properties) as raw:
        assert raw.offsets({place: LATEST}) == {place: COUNT}
        chunks = list(RawReader(raw, place, 0, COUNT))
    assert sum(chunk.next_offset - chunk.first_wanted for chunk in chunks) == COUNT


def test_the_audit_needs_only_to_read_its_topic(cluster: OwnClients) -> None:
    cluster.make_topic("audit", b"{}")
    audit = logbroker_command(cluster.servers, "audit", "--client-config", str(cluster.file))
    refused = audit()
    assert refused.returncode == 2
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
    cluster.allow(ResourceType.TOPIC, "audit", READ, DESCRIBE)
    done = audit()
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} records of the topic are not audit reports" in done.stderr


def test_the_mirror_runs_with_the_rights_that_its_page_lists(
    cluster: OwnClients, other: OwnClients, tmp_path: Path
) -> None:
    topic, group = "mirrored", "mirror-of-here"
    cluster.make_topic(topic)
    cluster.allow(ResourceType.TOPIC, topic, READ, AclOperation.DESCRIBE_CONFIGS)
    cluster.allow(ResourceType.GROUP, group, READ)
    needed = (WRITE, AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE_CONFIGS)
    other.allow(ResourceType.TOPIC, topic, *needed)
    command = [
        *("-m", "logbroker", "mirror", "--topics", topic, "--group", group),
        *("--from", cluster.servers, "--from-config", str(cluster.file)),
        *("--to", other.servers, "--to-config", str(other.file)),
    ]
    with ServerProcess(command, tmp_path / "mirror.log") as mirror:
        mirror.start(READY)
        until_copied(other.administrator, topic, COUNT)
        assert mirror.stop() == 0
    assert cluster.administrator.committed(group, topic, 1) == [COUNT]
    ((*records,),) = other.administrator.read(topic)
    assert [each.value for each in records] == [b"value"] * COUNT


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_the_spark_source_reads_what_its_user_may(
    cluster: OwnClients, spark: "SparkSession"
) -> None:
    cluster.make_topic("spark")
    cluster.allow(ResourceType.TOPIC, "spark", READ)
    options = {f"kafka.{name}": value for name, value in cluster.properties.items()}
    frame = spark.read.format("rewind").options(**options).option("subscribe", "spark").load()
    assert frame.count() == COUNT
