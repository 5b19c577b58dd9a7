"""Apache Kafka servers in KRaft mode, from jars that Maven downloads."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka.zookeeper import QUICK_START, find_java
from tests.support.processes.maven_jars import DOWNLOAD_S, LOG4J_TO_STDERR, require_jars
from tests.support.processes.ports import free_ports
from tests.support.processes.waiting import DEADLINE_S, until

VERSION: Final = "4.1.0"
JAVA_LEAST: Final = 17
TEST_TIMEOUT_S: Final = DOWNLOAD_S + 600
"""The time limit of tests that may be the first to download the jars."""

START_ATTEMPTS: Final = 10
ADMIN: Final = "admin"
"""The user with all permissions."""

PASSWORDS: Final = {
    user: f"word-of-{user}"
    for user in (ADMIN, "auditor", "operators", "rewind", "stranger", "unaudited")
}
"""The users of a server with a certificate, for PLAIN and both SCRAM mechanisms.

All but `ADMIN` have only the permissions that a test grants them.
"""

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_CLUSTER_ID: Final = "UmV3aW5kIHVuZGVyIHRlcw"
_DEPENDENCIES: Final = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)

_CONNECT: Final = (
    f"org.apache.kafka:connect-runtime:{VERSION}",
    f"org.apache.kafka:connect-file:{VERSION}",
    f"org.apache.kafka:connect-mirror:{VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
_STREAMS: Final = (
    f"org.apache.kafka:kafka-streams:{VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
_COMPILER: Final = "org.eclipse.jdt:ecj:3.42.0"
"""Compiles Java without a JDK: `make services` installs only what runs it."""


def require_kafka() -> Path:
    """Return the folder of the jars. Skip the test if Maven Central is unreachable."""
    return require_jars(f"kafka-{VERSION}", _DEPENDENCIES, java_least=JAVA_LEAST)


def require_connect() -> Path:
    """Return the folder of Kafka Connect's jars, with its file connectors and MirrorMaker 2."""
    return require_jars(f"kafka-connect-{VERSION}", _CONNECT, java_least=JAVA_LEAST)


def require_streams() -> Path:
    """Return the folder of Kafka Streams' jars."""
    return require_jars(f"kafka-streams-{VERSION}", _STREAMS, java_least=JAVA_LEAST)


def compile_java(source: Path, jars: Path, folder: Path) -> None:
    """Compile a source file against `jars` into class files in `folder`."""
    compiler = require_jars("ecj", [_COMPILER], java_least=JAVA_LEAST, are_alone=True)
    libraries = os.pathsep.join(map(str, jars.glob("*.jar")))
    target = ("-source", "17", "-target", "17", "-cp", libraries, "-d", str(folder))
    command = [find_java(), "-jar", *map(str, compiler.glob("ecj-*.jar")), *target, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr


def java_command(jars: Path, folder: Path, main_class: str) -> list[str]:
    """Return the command of a program in `jars` or `folder`, which logs to standard error."""
    configuration = folder / "log4j.properties"
    configuration.write_text(LOG4J_TO_STDERR)
    return [
        find_java(),
        *("-Xmx384m", *QUICK_START),
        f"-Dlog4j.configuration=file:{configuration}",
        *("-cp", f"{jars}/*{os.pathsep}{folder}", main_class),
    ]


class KafkaServer:
    """One server that is broker and controller. It keeps its port over restarts.

    Topics are made only by those who ask for them. A context manager: at its end the process is
    gone.
    """

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        """A server with a certificate requires TLS and a user of `PASSWORDS`.

        The file has key and certificate for 127.0.0.1 as PEM.
        """
        self._jars = require_kafka()
        self._folder = folder
        self._certificate = certificate
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def certificate(self) -> Path:
        """Return the file that clients trust."""
        assert self._certificate is not None
        return self._certificate

    @property
    def client_properties(self) -> dict[str, str]:
        """Return the properties of a client with all permissions."""
        place = {"bootstrap.servers": self.bootstrap_servers}
        if self._certificate is None:
            return place
        return place | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._certificate),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORDS[ADMIN],
        }

    @property
    def output(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server. It is ready on return."""
        for _ in range(START_ATTEMPTS):
            if not (self._folder / "data").exists():
                self._prepare()
            self._launch()
            until(lambda: self._is_ready() or not self._runs(), "Apache Kafka is ready")
            if self._runs():
                return
            assert "Address already in use" in self.output, self.output[-4_000:]
            shutil.rmtree(self._folder / "data")
        raise AssertionError("Apache Kafka found no free port")

    def kill(self) -> None:
        """Send SIGKILL. `start` finds the written data again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ports = free_ports(2)
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties().items()))
        storage = ["format", "--config", str(properties), "--cluster-id", _CLUSTER_ID]
        subprocess.run(
            [
                *java_command(self._jars, self._folder, "kafka.tools.StorageTool"),
                *storage,
                *self._scram_users(),
            ],
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )

    def _launch(self) -> None:
        command = [
            *java_command(self._jars, self._folder, "kafka.Kafka"),
            str(self._folder / "server.properties"),
        ]
        with (self._folder / "server.log").open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _is_ready(self) -> bool:
        """Report whether the server answers a stock client."""
        client = AdminClient(
            {**self.client_properties, "log_level": 0, "reconnect.backoff.max.ms": 100}
        )
        try:
            return bool(client.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _properties(self) -> dict[str, object]:
        port, controller_port = self._ports
        protocol = "PLAINTEXT" if self._certificate is None else "SASL_SSL"
        # The controller is used only by the broker in its own process.
        protocols = f"{protocol}:{protocol},CONTROLLER:PLAINTEXT"
        return {
            "process.roles": "broker,controller",
            "node.id": 0,
            "controller.quorum.voters": f"0@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"{protocol}://127.0.0.1:{port}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": protocol,
            "log.dirs": self._folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self._security_properties(),
        }

    def _security_properties(self) -> dict[str, object]:
        if self._certificate is None:
            return {}
        known = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        package = "org.apache.kafka.common.security"
        plain = (
            f"{package}.plain.PlainLoginModule required "
            f'username="{ADMIN}" password="{PASSWORDS[ADMIN]}" {known};'
        )
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._certificate,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._certificate,
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            **{
                f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": (
                    f"{package}.scram.ScramLoginModule required;"
                )
                for mechanism in SCRAM
            },
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def _scram_users(self) -> list[str]:
        users = {} if self._certificate is None else PASSWORDS
        return [
            argument
            for name, password in users.items()
            for mechanism in SCRAM
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]
