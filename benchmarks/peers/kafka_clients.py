"""Measures logbroker and Apache Kafka with several connections, with librdkafka and in Java.

Both have the same clients: the raw load of `broker_produce`, librdkafka through its C functions,
and the performance tools of Apache Kafka. Both are started in an empty folder in every round. Where
a line says so, Kafka flushes each batch, as `acks=all` does in logbroker.
"""

import multiprocessing
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click

from benchmarks import librdkafka
from benchmarks.broker_produce import LARGE, Case
from benchmarks.frames import (
    ACKS_ALL,
    ACKS_LEADER,
    MESSAGE,
    MESSAGE_BYTES,
    batch_of,
    encode_produce,
)
from benchmarks.librdkafka_clients import CONSUMER_SETTINGS
from benchmarks.peers import kafka_protocol
from benchmarks.peers.kafka_protocol import KafkaPeer
from benchmarks.peers.peer import Peer
from benchmarks.produce_load import Load, produce
from benchmarks.scale import median
from benchmarks.table import Baseline, Line, Target, share_at_least, share_at_most

OURS: Final = kafka_protocol.LOGBROKER
KAFKA: Final = kafka_protocol.KAFKA
KAFKA_FLUSHED: Final = kafka_protocol.KAFKA_FLUSHED

JAVA_PARTITIONS: Final = 8
JAVA_S: Final = 300.0
WARM_UP_S: Final = 0.5

RAW_CASES: Final[Mapping[Case, Target]] = {
    **{Case(1, ACKS_LEADER, connections): share_at_least(1.0) for connections in (1, 8, 64)},
    Case(1, ACKS_ALL, 64): share_at_least(1.0),
    **{Case(50, ACKS_LEADER, connections): share_at_least(1.0) for connections in (1, 8, 64)},
    Case(50, ACKS_ALL, 8): share_at_least(1.0),
    **{Case(LARGE, ACKS_LEADER, connections): share_at_least(1.0) for connections in (1, 8)},
}

CPU: Final = ", broker CPU"
IDEMPOTENT: Final = {"acks": "all", "enable.idempotence": "true"}
LEADER: Final = {"acks": "1", "enable.idempotence": "false"}


class ClientScale(NamedTuple):
    """The size of a run: seconds of a warm-up and of a case, messages of a tool in Java."""

    rounds: int
    start_s: float
    """The warm-up of a new broker: Java compiles what is called often."""
    case_s: float
    java_messages: int


FULL: Final = ClientScale(3, 6.0, 2.0, 2_000_000)
QUICK: Final = ClientScale(1, 0.2, 0.2, 20_000)

Figures = dict[str, list[float]]
"""Figures of the rounds by name of the line."""


def measure(scale: ClientScale, folder: Path) -> list[Line]:
    """Measure both brokers in each round.

    Raises:
        PeerUnavailable: Apache Kafka cannot be fetched.
    """
    kafka_protocol.kafka_jars()
    results: dict[Peer, Figures] = {peer: {} for peer in (OURS, KAFKA, KAFKA_FLUSHED)}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        for _ in range(scale.rounds):
            for peer, figures in results.items():
                _measure_peer(peer, scale, folder, process, figures)
    return list(lines_of(results))


def lines_of(results: Mapping[Peer, Figures]) -> Iterator[Line]:
    """Yield a line for each client; the baseline is Apache Kafka with the same client."""
    ours, kafka, flushed = (
        {name: median(values) for name, values in results[peer].items()}
        for peer in (OURS, KAFKA, KAFKA_FLUSHED)
    )
    for case, target in RAW_CASES.items():
        yield _line(f"raw, {case}", ours, kafka, target)
        yield _line(f"raw, {case}{CPU}", ours, kafka, share_at_most(1.0), "us/msg", "  broker CPU")
    yield _line("librdkafka, acks=1", ours, kafka, share_at_least(1.0))
    yield _line("librdkafka, consumer", ours, kafka, share_at_least(1.0))
    yield _line("Java, acks=1", ours, kafka, share_at_least(1.0))
    yield _line("Java, idempotent, acks=all", ours, kafka, share_at_least(0.9))
    yield _line("Java, consumer", ours, kafka, share_at_least(1.0))
    name = "Java, idempotent, acks=all"
    baseline = Baseline("Kafka, flush.messages=1", flushed[name])
    yield Line(f"{name}, both flush", ours[name], "msg/s", baseline, share_at_least(3.0))


def _line(
    name: str,
    ours: Mapping[str, float],
    kafka: Mapping[str, float],
    target: Target,
    unit: str = "msg/s",
    shown: str | None = None,
) -> Line:
    return Line(shown or name, ours[name], unit, Baseline("Apache Kafka", kafka[name]), target)


def _measure_peer(
    peer: Peer, scale: ClientScale, folder: Path, process: Executor, figures: Figures
) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as own, peer.run(Path(own)) as running:
        assert isinstance(running, KafkaPeer)
        _raw_case(running, Case(1, ACKS_LEADER, 8), scale.start_s)
        if peer is not KAFKA_FLUSHED:
            for case in RAW_CASES:
                rate, cpu_us = _raw_case(running, case, scale.case_s)
                figures.setdefault(f"raw, {case}", []).append(rate)
                figures.setdefault(f"raw, {case}{CPU}", []).append(cpu_us)
            for name, value in _librdkafka(running, process, scale.case_s):
                figures.setdefault(name, []).append(value)
        for name, value in _java(running, scale.java_messages):
            figures.setdefault(name, []).append(value)
    os.sync()


def _raw_case(running: KafkaPeer, case: Case, seconds: float) -> tuple[float, float]:
    """Return messages/s, and the broker's CPU for each message in microseconds."""
    batch = batch_of(case.records, time.time_ns() // 1_000_000)
    with _topic(running, 1) as topic:
        request = encode_produce(topic, batch, case.records, case.acks)
        load = Load(case.connections, case.in_flight, seconds)
        produce(running.broker.address, request, load._replace(seconds=WARM_UP_S))
        before_s = running.cpu_s()
        sent = produce(running.broker.address, request, load)
        messages = sent.requests * case.records
        return messages / sent.seconds, (running.cpu_s() - before_s) * 1e6 / messages


def _librdkafka(
    running: KafkaPeer, process: Executor, seconds: float
) -> Iterator[tuple[str, float]]:
    servers = {"bootstrap.servers": running.broker.bootstrap_servers}
    with _topic(running, 1) as topic:
        count, elapsed_s = process.submit(
            librdkafka.produce_for, topic, servers | LEADER, MESSAGE, seconds
        ).result()
        yield "librdkafka, acks=1", count / elapsed_s
        running.broker.wait_for_end(topic, count + 1)
        timed, consume_s = process.submit(
            librdkafka.consume, topic, servers | CONSUMER_SETTINGS, count + 1
        ).result()
        yield "librdkafka, consumer", timed / consume_s


def _java(running: KafkaPeer, messages: int) -> Iterator[tuple[str, float]]:
    with _topic(running, JAVA_PARTITIONS) as topic:
        for name, settings in (
            ("Java, acks=1", LEADER),
            ("Java, idempotent, acks=all", IDEMPOTENT),
        ):
            yield name, parse_producer(_run_producer(running, topic, messages, settings))
        yield "Java, consumer", parse_consumer(_run_consumer(running, topic, messages))


def _run_producer(
    running: KafkaPeer, topic: str, messages: int, settings: Mapping[str, str]
) -> str:
    given = {**settings, "bootstrap.servers": running.broker.bootstrap_servers}
    return _run_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(messages)),
        *("--record-size", str(MESSAGE_BYTES), "--throughput", "-1"),
        *("--producer-props", *(f"{name}={value}" for name, value in given.items())),
    )


def _run_consumer(running: KafkaPeer, topic: str, messages: int) -> str:
    return _run_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", running.broker.bootstrap_servers),
        *("--topic", topic, "--messages", str(messages)),
    )


def parse_producer(output: str) -> float:
    """Return the messages/s in the last line of Kafka's `ProducerPerformance`."""
    rate, unit = output.splitlines()[-1].split(", ")[1].split(" ")[:2]
    assert unit == "records/sec", output
    return float(rate)


def parse_consumer(output: str) -> float:
    """Return the messages/s after joining, from the table of Kafka's `ConsumerPerformance`."""
    head, figures = (line.split(", ") for line in output.splitlines()[-2:])
    return float(figures[head.index("fetch.nMsg.sec")])


def _run_tool(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [
            *("java", "-Xmx512m", "-cp", f"{kafka_protocol.kafka_jars()}/*"),
            *(f"org.apache.kafka.tools.{name}", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=JAVA_S,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(f"{name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


@contextmanager
def _topic(running: KafkaPeer, partitions: int) -> Iterator[str]:
    """Create a topic with a new name, and delete it at the end of the block."""
    topic = f"clients-{uuid.uuid4()}"
    running.create_topic(topic, partitions)
    try:
        yield topic
    finally:
        running.broker.delete_topic(topic)
