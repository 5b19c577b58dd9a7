"""Kafka's `kafka-configs.sh` manages the client quotas of this broker."""

from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S
from tests.support.kafka.kafka_commands import KafkaCommands
from tests.support.kafka.quota_broker import LIMITED, QuotaBroker
from tests.support.kafka.raw_quotas import describe_quotas, described

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.xdist_group("apache_kafka"),
]


class ConfigTool:
    """`kafka-configs.sh` for one broker."""

    def __init__(self, commands: KafkaCommands, servers: str) -> None:
        self._commands = commands
        self._servers = servers

    def run(self, *options: str) -> str:
        done = self._commands.run("kafka-configs.sh", "--bootstrap-server", self._servers, *options)
        assert done.code == 0, done.output
        return done.output


def test_kafka_configs_changes_and_prints_quotas(
    kafka_commands: KafkaCommands, tmp_path: Path
) -> None:
    with QuotaBroker(tmp_path / "log") as broker:
        tool = ConfigTool(kafka_commands, broker.bootstrap(LIMITED))
        alter, user = ("--alter",), ("--entity-type", "users", "--entity-name", "alice")
        rates = "producer_byte_rate=1024,consumer_byte_rate=2048,controller_mutation_rate=0.5"
        tool.run(*alter, *user, "--add-config", rates)
        clients = ("--entity-type", "clients", "--entity-default")
        tool.run(*alter, *clients, "--add-config", "request_percentage=12.5")
        address = ("--entity-type", "ips", "--entity-name", "127.0.0.2")
        tool.run(*alter, *address, "--add-config", "connection_creation_rate=20")
        assert "connection_creation_rate=20" in tool.run("--describe", *address)
        tool.run(*alter, *user, *clients, "--add-config", "producer_byte_rate=512")
        shown = tool.run("--describe", *user)
        assert all(each in shown for each in rates.split(","))
        assert "request_percentage=12.5" in tool.run("--describe", *clients)
        tool.run(*alter, *user, "--delete-config", "consumer_byte_rate")
        assert described(describe_quotas(broker.admin)) == [
            (
                {"user": "alice"},
                {"controller_mutation_rate": 0.5, "producer_byte_rate": 1024.0},
            ),
            ({"user": "alice", "client-id": None}, {"producer_byte_rate": 512.0}),
            ({"client-id": None}, {"request_percentage": 12.5}),
            ({"ip": "127.0.0.2"}, {"connection_creation_rate": 20.0}),
        ]
