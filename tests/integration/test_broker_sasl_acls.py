"""Stock clients that authenticate with SASL_SSL are held to the ACLs of their user."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AclBinding, AclOperation, ResourceType
from kafka.errors import TopicAuthorizationFailedError

from tests.integration.test_broker_sasl import USER, SaslBroker
from tests.support.kafka.guarded_broker import ANONYMOUS, acl
from tests.support.processes.waiting import DEADLINE_S

MECHANISM = "SCRAM-SHA-512"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """A broker whose administrator comes without authentication, from its own machine."""
    folder = tmp_path_factory.mktemp("sasl-acls")
    with SaslBroker(folder, authorizer=True, super_users=ANONYMOUS) as broker:
        yield broker


def allow(broker: SaslBroker, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    wanted: list[AclBinding] = [
        acl(kind, name, operation, principal=f"User:{USER}", host="*") for operation in operations
    ]
    for result in broker.admin.create_acls(wanted).values():
        result.result(DEADLINE_S)


def kafka_python(broker: SaslBroker) -> dict[str, Any]:
    return {
        **broker.python(MECHANISM),
        "bootstrap_servers": broker.bootstrap("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(broker.authority.certificate),
    }


def test_confluent_kafka_writes_and_reads_what_its_user_may(broker: SaslBroker) -> None:
    topic, codes = "confluent", list[int]()
    broker.make_topic(topic)
    for operations in ((AclOperation.DESCRIBE,), (AclOperation.WRITE, AclOperation.READ)):
        allow(broker, ResourceType.TOPIC, topic, *operations)
        producer = Producer(broker.librdkafka(MECHANISM))
        producer.produce(
            topic, b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
        )
        assert producer.flush(DEADLINE_S) == 0
    assert codes == [KafkaError.TOPIC_AUTHORIZATION_FAILED, 0]
    allow(broker, ResourceType.GROUP, "confluent-readers", AclOperation.READ)
    settings = {"group.id": "confluent-readers", "auto.offset.reset": "earliest"}
    with closing(Consumer({**broker.librdkafka(MECHANISM), **settings})) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"value")


def test_kafka_python_writes_what_its_user_may(broker: SaslBroker) -> None:
    topic = "kafka-python"
    broker.make_topic(topic)
    allow(broker, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    with (
        closing(kafka.KafkaProducer(**kafka_python(broker), enable_idempotence=False)) as producer,
        pytest.raises(TopicAuthorizationFailedError),
    ):
        producer.send(topic, b"1").get(DEADLINE_S)
    allow(broker, ResourceType.TOPIC, topic, AclOperation.WRITE)
    with closing(kafka.KafkaProducer(**kafka_python(broker))) as producer:
        producer.send(topic, b"2").get(DEADLINE_S)
