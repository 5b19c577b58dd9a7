"""An Apache Kafka server for the benchmarks, from jars that Maven fetches.

Unlike the servers of the tests it has the heap and the garbage collector of Kafka's own start
script, and both compilers of Java: its processor time is part of the results.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.maven_jars import JarsUnavailable, fetch_jars
from benchmarks.running_broker import until
from benchmarks.zookeeper_server import STOP_S, free_port

VERSION: Final = "4.1.0"
CLUSTER_ID: Final = "UmV3aW5kIGJlbmNobWFyaw"
READY_S: Final = 120.0
REQUEST_S: Final = 1.0

_JARS: Final = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
_LOGGING: Final = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.SimpleLayout
"""


def kafka_jars() -> Path:
    """Return the folder of the server's jars.

    Raises:
        JarsUnavailable: Java or Maven is missing, or Maven cannot download them.
    """
    if shutil.which("java") is None:
        raise JarsUnavailable("Java is not installed")
    return fetch_jars(f"kafka-{VERSION}", _JARS)


@contextmanager
def kafka_server(
    folder: Path, jars: Path, listeners: Mapping[str, str], certificate: Path | None = None
) -> Iterator[int]:
    """Run a server with addresses by security protocol, and yield its process id.

    `certificate` is a PEM file with key and certificate, which a listener with TLS needs. The
    server is stopped at the end.

    Raises:
        ClickException: the server does not start.
    """
    folder.mkdir()
    (folder / "log4j.properties").write_text(_LOGGING)
    properties = _properties(folder, listeners, certificate)
    (folder / "server.properties").write_text(
        "".join(f"{name}={value}\n" for name, value in properties.items())
    )
    java = [
        *("java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *(f"-Dlog4j.configuration=file:{folder}/log4j.properties", "-cp", f"{jars}/*"),
    ]
    configuration = str(folder / "server.properties")
    with (folder / "server.log").open("wb") as output:
        subprocess.run(
            [
                *(*java, "kafka.tools.StorageTool", "format"),
                *("--config", configuration, "--cluster-id", CLUSTER_ID),
            ],
            stdout=output,
            stderr=output,
            check=False,
        )
        process = subprocess.Popen(
            [*java, "kafka.Kafka", configuration],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(
            lambda: _is_ready(listeners["PLAINTEXT"]) or process.poll() is not None,
            "Apache Kafka is ready",
            deadline_s=READY_S,
        )
        if process.poll() is not None:
            reason = (folder / "server.log").read_text(errors="replace")
            raise click.ClickException(f"Apache Kafka did not start:\n{reason}")
        yield process.pid
    finally:
        process.kill()
        process.wait(STOP_S)


def _properties(
    folder: Path, listeners: Mapping[str, str], certificate: Path | None
) -> dict[str, str | int]:
    """Return the settings of one server that is broker and controller; others are defaults."""
    controller = f"127.0.0.1:{free_port()}"
    addresses = ",".join(f"{protocol}://{address}" for protocol, address in listeners.items())
    protocols = ",".join(f"{protocol}:{protocol}" for protocol in listeners)
    return {
        "process.roles": "broker,controller",
        "node.id": 0,
        "controller.quorum.voters": f"0@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{addresses},CONTROLLER://{controller}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **_keystore(certificate),
        "log.dirs": str(folder / "data"),
        "log.segment.delete.delay.ms": 1_000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
    }


def _keystore(certificate: Path | None) -> dict[str, str | int]:
    if certificate is None:
        return {}
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificate)}


def _is_ready(address: str) -> bool:
    client = AdminClient(
        {"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 100}
    )
    try:
        return bool(client.list_topics(timeout=REQUEST_S).brokers)
    except KafkaException:
        return False
