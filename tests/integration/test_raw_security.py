"""The raw client and an Apache Kafka that lets in only whom it knows."""

import logging

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from logbroker.client.errors import BrokersUnavailable, NotAuthorized
from logbroker.client.raw import LATEST, RawCluster, RawReader, TopicPartition
from tests.support.kafka.apache_kafka import (
    ADMIN,
    PASSWORDS,
    SCRAM,
    TEST_TIMEOUT_S,
    KafkaServer,
)
from tests.support.kafka.mirrored_clusters import ClusterClient, Record
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [
    pytest.mark.xdist_group("apache_kafka"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]

STRANGER = "stranger"
"""Who is known, and may do nothing."""

TOPIC = "secured"
PLACE = TopicPartition(TOPIC, 0)
COUNT = 50
MODULES = {"PLAIN": "plain.PlainLoginModule", **dict.fromkeys(SCRAM, "scram.ScramLoginModule")}


@pytest.fixture(scope="module")
def kafka(secured_kafka: KafkaServer) -> KafkaServer:
    """A server with a topic of some records."""
    properties = secured_kafka.client_properties
    client = ClusterClient(properties.pop("bootstrap.servers"), **properties)
    client.make_topic(TOPIC, 1)
    client.write(TOPIC, [Record(0, number, None, b"value") for number in range(COUNT)])
    return secured_kafka


def librdkafka(
    server: KafkaServer, mechanism: str, user: str = ADMIN, **changes: str
) -> dict[str, str]:
    return {
        "bootstrap.servers": server.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(server.certificate),
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": changes.get("password") or PASSWORDS[user],
    }


def java(server: KafkaServer, mechanism: str) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return {
        "bootstrap.servers": server.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(server.certificate),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": (
            f'{module} required username="{ADMIN}" password="{PASSWORDS[ADMIN]}";'
        ),
    }


def count_of(properties: dict[str, str]) -> int:
    """How many offsets are read."""
    with RawCluster(properties) as cluster:
        end = cluster.offsets({PLACE: LATEST})[PLACE]
        assert end is not None
        return sum(
            chunk.next_offset - chunk.first_wanted for chunk in RawReader(cluster, PLACE, 0, end)
        )


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize("dialect", [librdkafka, java])
def test_records_are_read_with_every_mechanism_that_is_spoken(
    kafka: KafkaServer,
    dialect: object,
    mechanism: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert callable(dialect)
    with caplog.at_level(logging.DEBUG):
        assert count_of(dialect(kafka, mechanism)) == COUNT
    assert PASSWORDS[ADMIN] not in caplog.text


@pytest.mark.parametrize("name", ["o=dd, na=me", "=2C"])
def test_a_name_may_have_the_signs_of_the_mechanism_in_it(kafka: KafkaServer, name: str) -> None:
    password = "p=a,s s=2Cwörd"
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(name, credential, password.encode())
    admin = AdminClient({**kafka.client_properties})
    admin.alter_user_scram_credentials([upsertion])[name].result(DEADLINE_S)
    properties = librdkafka(kafka, "SCRAM-SHA-512", name, password=password)

    def is_known() -> bool:
        # Authentication succeeds, then the topic is not authorized.
        with pytest.raises(NotAuthorized) as refused, RawCluster(properties) as cluster:
            cluster.topics([TOPIC])
        return "TOPIC_AUTHORIZATION_FAILED" in str(refused.value)

    until(is_known, "the broker knows the user")


@pytest.mark.parametrize("mechanism", MODULES)
def test_a_wrong_password_is_reported_immediately_without_its_value(
    kafka: KafkaServer, mechanism: str
) -> None:
    properties = librdkafka(kafka, mechanism, password="wrong-word")

    with RawCluster(properties) as cluster, pytest.raises(NotAuthorized) as refused:
        cluster.topics(None)

    assert f"rejects user {ADMIN!r}" in str(refused.value)
    shown = f"{refused.value!r} {cluster!r} {cluster.settings!r}"
    assert "wrong-word" not in shown


def test_an_unauthorized_topic_is_reported(kafka: KafkaServer) -> None:
    properties = librdkafka(kafka, "PLAIN", STRANGER)

    with RawCluster(properties) as cluster:
        assert cluster.topics(None) == {}
        with pytest.raises(NotAuthorized, match=TOPIC):
            cluster.topics([TOPIC])
        with pytest.raises(NotAuthorized, match=TOPIC):
            list(RawReader(cluster, PLACE, 0, COUNT))


def test_an_untrusted_server_receives_no_password(kafka: KafkaServer) -> None:
    properties = kafka.client_properties
    del properties["ssl.ca.location"]

    with RawCluster(properties) as cluster, pytest.raises(NotAuthorized, match="is not trusted"):
        cluster.topics(None)


def test_a_client_without_tls_reports_an_unavailable_broker(kafka: KafkaServer) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap_servers}

    with RawCluster(properties, timeout_s=1.0) as cluster, pytest.raises(BrokersUnavailable):
        cluster.topics(None)
