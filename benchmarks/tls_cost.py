"""Measures what TLS costs a broker and its stock client, beside Apache Kafka.

One broker has both listeners. In each round, one librdkafka client produces and consumes the same
topic through PLAINTEXT, and then through SSL. The figures are the rate, and the CPU of the broker
alone; the baselines are those of PLAINTEXT. `acks=1` keeps flushes of the disk out of the rate.
"""

import datetime as dt
import ipaddress
import multiprocessing
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks import kafka_server, librdkafka
from benchmarks.frames import MESSAGE
from benchmarks.librdkafka_clients import CONSUMER_SETTINGS
from benchmarks.maven_jars import JarsUnavailable
from benchmarks.running_broker import RunningBroker
from benchmarks.running_process import running_process
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line
from benchmarks.zookeeper_server import free_port

PROTOCOLS: Final = ("PLAINTEXT", "SSL")
KAFKA: Final = f"Apache Kafka {kafka_server.VERSION}"
VALID: Final = dt.timedelta(days=2)


class Work(NamedTuple):
    """What one client did in one round."""

    rate: float
    """Messages per second."""
    cpu: float
    """CPU seconds of the broker per million messages."""


class Round(NamedTuple):
    """One broker and one protocol in one round."""

    produced: Work
    consumed: Work


class Server(NamedTuple):
    """A running broker, and the address of its listener by security protocol."""

    broker: RunningBroker
    addresses: Mapping[str, str]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure both brokers in each round, after one that is not counted."""
    certificate = _write_certificate(folder)
    with ExitStack() as stack:
        ours = _our_server(folder / "ours", _free_addresses(), certificate)
        servers = {"logbroker": stack.enter_context(ours)}
        skipped = []
        try:
            jars = kafka_server.kafka_jars()
        except JarsUnavailable as error:
            skipped.append(Line(f"{KAFKA}: {error}", 0.0, "msg/s"))
        else:
            kafka = _kafka_server(folder / "kafka", jars, _free_addresses(), certificate)
            servers[KAFKA] = stack.enter_context(kafka)
        process = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
        # The first round starts the client, and lets Java compile.
        _, *rounds = (
            {
                name: _measure_round(server, certificate, process, scale.client_s)
                for name, server in servers.items()
            }
            for _ in range(scale.rounds + 1)
        )
    lines = [line for name in servers for line in lines_of(name, [each[name] for each in rounds])]
    return [*lines, *skipped]


def _measure_round(
    server: Server, certificate: Path, process: Executor, seconds: float
) -> dict[str, Round]:
    """Produce for `seconds` through each protocol in turn, and consume what was produced."""
    return {
        protocol: _measure_protocol(server, protocol, certificate, process, seconds)
        for protocol in PROTOCOLS
    }


def _measure_protocol(
    server: Server, protocol: str, certificate: Path, process: Executor, seconds: float
) -> Round:
    broker, topic = server.broker, f"{protocol}-{uuid.uuid4()}"
    settings = {
        "bootstrap.servers": server.addresses[protocol],
        "security.protocol": protocol,
        "ssl.ca.location": str(certificate),
    }
    broker.create_topic(topic)
    start_s = broker.cpu_s()
    count, produce_s = process.submit(
        librdkafka.produce_for, topic, settings | {"acks": "1"}, MESSAGE, seconds
    ).result()
    produced_s = broker.cpu_s()
    broker.wait_for_end(topic, count + 1)
    before_s = broker.cpu_s()
    timed, consume_s = process.submit(
        librdkafka.consume, topic, settings | CONSUMER_SETTINGS, count + 1
    ).result()
    consumed_s = broker.cpu_s()
    broker.delete_topic(topic)
    return Round(
        Work(count / produce_s, (produced_s - start_s) / count * 1e6),
        Work(timed / consume_s, (consumed_s - before_s) / count * 1e6),
    )


def lines_of(name: str, rounds: Sequence[Mapping[str, Round]]) -> Iterator[Line]:
    """Yield the medians of a broker; the baseline of SSL is PLAINTEXT."""
    for title, kind in (("produce", 0), ("consume", 1)):
        plain, tls = (
            Work(
                median(each[protocol][kind].rate for each in rounds),
                median(each[protocol][kind].cpu for each in rounds),
            )
            for protocol in PROTOCOLS
        )
        yield Line(f"{name}, {title}, PLAINTEXT", plain.rate, "msg/s")
        yield Line("  SSL", tls.rate, "msg/s", Baseline("PLAINTEXT", plain.rate))
        yield Line("  broker CPU, PLAINTEXT", plain.cpu, "s/M msg")
        yield Line("  broker CPU, SSL", tls.cpu, "s/M msg", Baseline("PLAINTEXT", plain.cpu))


@contextmanager
def _our_server(
    data_dir: Path, addresses: Mapping[str, str], certificate: Path
) -> Iterator[Server]:
    """Run `logbroker serve` with a listener for each protocol."""
    listeners = ",".join(f"{protocol}://{address}" for protocol, address in addresses.items())
    arguments = [
        *("-m", "logbroker", "serve", "--data-dir", str(data_dir)),
        *("--listeners", listeners, "--ssl-certfile", str(certificate)),
    ]
    with running_process(arguments, "logbroker ready on ") as running:
        yield _server(running.process.pid, data_dir, addresses)


@contextmanager
def _kafka_server(
    folder: Path, jars: Path, addresses: Mapping[str, str], certificate: Path
) -> Iterator[Server]:
    with kafka_server.kafka_server(folder, jars, addresses, certificate) as pid:
        yield _server(pid, folder / "data", addresses)


def _server(pid: int, data_dir: Path, addresses: Mapping[str, str]) -> Server:
    return Server(RunningBroker(addresses["PLAINTEXT"], pid, data_dir), addresses)


def _free_addresses() -> dict[str, str]:
    return {protocol: f"127.0.0.1:{free_port()}" for protocol in PROTOCOLS}


def _write_certificate(folder: Path) -> Path:
    """Write a PEM file with a key and its self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "broker.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
