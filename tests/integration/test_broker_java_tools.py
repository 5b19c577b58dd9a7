"""Kafka's Java tools manage users, topics and ACLs over SASL_SSL, and are held to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.integration.test_broker_sasl import SaslBroker
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S
from tests.support.kafka.guarded_broker import ANONYMOUS
from tests.support.kafka.kafka_commands import KafkaCommands
from tests.support.processes.waiting import DEADLINE_S

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.xdist_group("apache_kafka"),
]

ADMIN, CLIENT = "admin", "carol"
PASSWORD = "word-of-%s"
CONFIG_OPTIONS = {
    "kafka-console-consumer.sh": "--consumer.config",
    "kafka-console-producer.sh": "--producer.config",
}
"""The option that names the client's properties, where it is not `--command-config`."""


class JavaTools:
    """Kafka's tools, as an administrator with SCRAM-SHA-512 and a client with SCRAM-SHA-256."""

    def __init__(self, commands: KafkaCommands, folder: Path) -> None:
        self._commands = commands
        self._folder = folder
        self.broker = SaslBroker(folder, authorizer=True, super_users=f"{ANONYMOUS};User:{ADMIN}")
        self.broker.add_user(ADMIN, PASSWORD % ADMIN)
        for user, mechanism in ((ADMIN, "SCRAM-SHA-512"), (CLIENT, "SCRAM-SHA-256")):
            self._properties(user).write_text(
                "security.protocol=SASL_SSL\n"
                "ssl.truststore.type=PEM\n"
                f"ssl.truststore.location={self.broker.authority.certificate}\n"
                f"sasl.mechanism={mechanism}\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{user}" password="{PASSWORD % user}";\n'
            )

    def run(self, script: str, *options: str, user: str = CLIENT, given: str = "") -> str:
        """Run a tool to its end; returns what it printed."""
        config = CONFIG_OPTIONS.get(script, "--command-config")
        return self._commands.run(
            script,
            *("--bootstrap-server", self.broker.bootstrap("SASL_SSL")),
            *(config, str(self._properties(user)), *options),
            given=given,
        ).output

    def _properties(self, user: str) -> Path:
        return self._folder / f"{user}.properties"


@pytest.fixture
def tools(kafka_commands: KafkaCommands, tmp_path: Path) -> Iterator[JavaTools]:
    tools = JavaTools(kafka_commands, tmp_path)
    with tools.broker:
        yield tools


def retention_ms(tools: JavaTools, topic: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = tools.broker.admin.describe_configs([resource])[resource].result(DEADLINE_S)
    value: str | None = described["retention.ms"].value
    return value


def test_kafkas_tools_set_up_users_topics_and_acls_and_are_held_to_them(tools: JavaTools) -> None:
    password = PASSWORD % CLIENT
    credentials = f"SCRAM-SHA-256=[iterations=8192,password={password}]"
    named = ("--entity-type", "users", "--entity-name", CLIENT)
    added = ("--alter", *named, "--add-config", credentials)
    assert "Completed updating" in tools.run("kafka-configs.sh", *added, user=ADMIN)
    for topic in ("allowed", "hidden"):
        created = ("--create", "--topic", topic, "--config", "retention.ms=1000000")
        assert f"Created topic {topic}" in tools.run("kafka-topics.sh", *created, user=ADMIN)
    settings = ("--alter", "--entity-type", "topics", "--entity-name", "allowed")
    changed = (*settings, "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    assert "Completed updating" in tools.run("kafka-configs.sh", *changed, user=ADMIN)
    described = ("--describe", "--entity-type", "topics", "--entity-name", "allowed")
    printed = tools.run("kafka-configs.sh", *described, user=ADMIN)
    assert "cleanup.policy=compact,delete" in printed
    assert "retention.ms=7200000" in printed

    allowed = ("--topic", "allowed")
    assert "TopicAuthorizationException" in write(tools, "allowed"), "nothing is allowed yet"
    for kind in (("--producer",), ("--consumer", "--group", "readers")):
        grant = ("--add", "--allow-principal", f"User:{CLIENT}", *kind, *allowed)
        assert "Adding ACLs" in tools.run("kafka-acls.sh", *grant, user=ADMIN)
    assert "Exception" not in write(tools, "allowed")
    assert "TopicAuthorizationException" in write(tools, "hidden")
    assert read(tools, "allowed", "readers") == "one\ntwo\nProcessed a total of 2 messages\n"
    assert "TopicAuthorizationException" in read(tools, "hidden", "readers")
    assert "GroupAuthorizationException" in read(tools, "allowed", "others")
    assert tools.run("kafka-topics.sh", "--list").split() == ["allowed"]
    refused = tools.run("kafka-topics.sh", "--create", "--topic", "of-the-client")
    assert "TopicAuthorizationException" in refused
    refused = tools.run("kafka-configs.sh", *settings, "--add-config", "retention.ms=1")
    assert "TopicAuthorizationException" in refused
    assert retention_ms(tools, "allowed") == "7200000"
    assert "ClusterAuthorizationException" in tools.run("kafka-acls.sh", "--list")

    listed = tools.run("kafka-acls.sh", "--list", *allowed, user=ADMIN)
    assert {
        each for each in ("READ", "WRITE", "CREATE", "DESCRIBE") if f"operation={each}," in listed
    } == {"READ", "WRITE", "CREATE", "DESCRIBE"}
    removed = ("--remove", "--force", "--allow-principal", f"User:{CLIENT}", "--producer")
    tools.run("kafka-acls.sh", *removed, *allowed, user=ADMIN)
    # Without Write on any topic, an idempotent producer gets no producer id.
    assert "ClusterAuthorizationException" in write(tools, "allowed")
    withdrawn = ("--alter", *named, "--delete-config", "SCRAM-SHA-256")
    assert "Completed updating" in tools.run("kafka-configs.sh", *withdrawn, user=ADMIN)
    assert "SaslAuthenticationException" in tools.run("kafka-topics.sh", "--list")


def write(tools: JavaTools, topic: str) -> str:
    key = ("--property", "parse.key=true", "--property", "key.separator=:")
    given = "1:one\n2:two\n"
    return tools.run("kafka-console-producer.sh", "--topic", topic, *key, given=given)


def read(tools: JavaTools, topic: str, group: str) -> str:
    end = ("--max-messages", "2", "--timeout-ms", str(int(DEADLINE_S * 1000)))
    return tools.run(
        "kafka-console-consumer.sh", *("--topic", topic, "--group", group, "--from-beginning"), *end
    )
