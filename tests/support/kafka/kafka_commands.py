"""Kafka's own commands, such as `kafka-topics.sh`, in one JVM for all tests of a process."""

import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.kafka.apache_kafka import compile_java, java_command, require_kafka
from tests.support.processes.waiting import DEADLINE_S

RUNNER: Final = Path(__file__).parent / "command_runner" / "CommandRunner.java"

CLASSES: Final = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
"""The class that each script of Kafka 4.1 runs."""


class CommandResult(NamedTuple):
    """The end of a command."""

    code: int
    output: str
    """What it printed and logged."""


class KafkaCommands:
    """The JVM that runs the commands."""

    def __init__(self, folder: Path) -> None:
        jars = require_kafka()
        folder.mkdir(parents=True, exist_ok=True)
        compile_java(RUNNER, jars, folder)
        self._process = subprocess.Popen(
            java_command(jars, folder, RUNNER.stem),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *arguments: str, given: str = "") -> CommandResult:
        """Run a script to its end, with `given` as its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = (given, CLASSES[script], *arguments)
        print(*(b64encode(word.encode()).decode() for word in words), file=self._process.stdin)
        self._process.stdin.flush()
        code, _, output = self._process.stdout.readline().partition(" ")
        return CommandResult(int(code), b64decode(output).decode())

    def stop(self) -> None:
        self._process.communicate(timeout=DEADLINE_S)
