"""`logbroker serve` as a process that tests start, kill and start again."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S


class BrokerProcess(ServerProcess):
    """`logbroker serve` on a folder and on one port, however often it is started."""

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        wrapper: Sequence[str] = (),
        port: int | None = None,
        name: str = "broker",
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self._options = options
        super().__init__([], data_dir.parent / f"{name}.log")
        self._wrapped = [*wrapper, sys.executable, "-m", "logbroker", "serve"]

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        self._command = [
            *self._wrapped,
            *("--listen", self.bootstrap_servers, "--data-dir", str(self.data_dir)),
            # Records of tests may have any age. A test of retention has its own period.
            *("--retention-check-s", "86400"),
            # Most tests need topics with default settings only.
            "--auto-create-topics",
            *self._options,
        ]
        super().launch()

    def serve(self) -> Self:
        """Start the process and wait until it is ready."""
        self.start("logbroker ready on ")
        return self

    def make_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic. Settings have Kafka's names with `_` instead of dots."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(
            DEADLINE_S
        )

    def change_topic(self, topic: str, **settings: str) -> None:
        """Change settings of a topic, named as for `make_topic`."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
