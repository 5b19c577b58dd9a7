"""librdkafka's own broker: a foreign one, in this process, that knows no controller."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.processes.waiting import DEADLINE_S


@pytest.fixture(scope="session")
def an_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority that vouches for nobody."""
    folder = tmp_path_factory.mktemp("authority")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=none"
    files: list[str | Path] = ["-keyout", folder / "key.pem", "-out", folder / "certificate.pem"]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return folder / "certificate.pem"


@pytest.fixture(autouse=True)
def few_authorities(an_authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sender and client loads the authorities that the machine trusts: here it is one."""
    monkeypatch.setenv("SSL_CERT_FILE", str(an_authority))


@pytest.fixture
def foreign_broker() -> Iterator[str]:
    """HOST:PORT of a broker that creates topics of four partitions when they are written to."""
    broker = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    first = next(iter(broker.list_topics(timeout=DEADLINE_S).brokers.values()))
    yield f"{first.host}:{first.port}"
    del broker


@pytest.fixture
def refused_address() -> Iterator[str]:
    """HOST:PORT where nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
