"""`logbroker audit` on an Apache Kafka that lets in only whom it knows: the rights it needs."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka.apache_kafka import PASSWORDS, TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.long

TOPIC = "reports-of-the-auditor"


def grant(server: KafkaServer, *operations: AclOperation) -> None:
    admin = AdminClient({**server.client_properties})
    rights = [
        AclBinding(
            ResourceType.TOPIC,
            TOPIC,
            ResourcePatternType.LITERAL,
            "User:auditor",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for granted in admin.create_acls(rights).values():
        granted.result(DEADLINE_S)


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_reading_the_topic_is_the_only_right_that_it_needs(
    secured_kafka: KafkaServer, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanisms=SCRAM-SHA-512\n"
        "sasl.username=auditor\n"
        f"sasl.password={PASSWORDS['auditor']}\n"
        f"ssl.ca.location={secured_kafka.certificate}\n"
    )
    audit = logbroker_command(secured_kafka.bootstrap_servers, "audit", "--audit-topic", TOPIC)
    admin = AdminClient({**secured_kafka.client_properties})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(DEADLINE_S)
    producer = Producer(secured_kafka.client_properties)
    producer.produce(TOPIC, b"{}")
    assert producer.flush(DEADLINE_S) == 0

    refused = audit("--client-config", str(properties))
    assert refused.returncode == 2
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
    assert "Traceback" not in refused.stderr
    grant(secured_kafka, AclOperation.READ, AclOperation.DESCRIBE)
    done = audit("--client-config", str(properties))
    assert done.returncode == 0, done.stderr
    assert "1 records of the topic are not audit reports" in done.stderr
    # A stranger is not let in.
    assert audit().returncode == 2
