"""Measures stock clients against the broker, in messages/s: producers and consumers.

Every client runs in a separate process. The producer's baseline is the same client against
librdkafka's mock cluster, a broker in C that stores nothing: that rate is the client's own limit.
The consumer's baseline is a raw fetch of the same log.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks import librdkafka
from benchmarks.broker_fetch import store_log
from benchmarks.fetch_load import StoredLog, fetch
from benchmarks.frames import MESSAGE
from benchmarks.running_broker import RunningBroker, fresh_broker
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, Target, at_least

TOPIC: Final = "clients"
STORED: Final = "stored"
FETCH_BYTES: Final = 2**20
CONSUMED_AT_ONCE: Final = 10_000
TIMEOUT_S: Final = 10.0

CONSUMER_SETTINGS: Final = {
    # With the default of 100,000, a fast consumer empties the queue and then waits for the second
    # that the library pauses after it was full. Its own performance tool sets this number.
    "queued.min.messages": "1000000",
}


class Case(NamedTuple):
    """Settings of a producer that differ from the library's defaults."""

    name: str
    settings: tuple[tuple[str, str], ...]
    target: Target


class Produced(NamedTuple):
    """One case in one round."""

    rate: float
    mock_rate: float
    busy: float
    """CPU of the broker, in cores."""


class Consumed(NamedTuple):
    """The consumers in one round, in messages/s."""

    library: float
    objects: float
    """With a Python object for each message."""
    raw: float


CASES: Final = (
    Case("librdkafka, defaults", (), at_least(2_000_000)),
    Case("librdkafka, batch 50", (("batch.num.messages", "50"),), at_least(1_200_000)),
    Case(
        "librdkafka, batch 1, acks 0",
        (("batch.num.messages", "1"), ("acks", "0")),
        at_least(50_000),
    ),
)


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure producers and consumers in each round."""
    produced: dict[Case, list[Produced]] = {case: [] for case in CASES}
    consumed = []
    with fresh_broker(folder) as broker, _client_process() as process:
        log = store_log(broker, STORED)
        for _ in range(scale.rounds):
            for case in CASES:
                produced[case].append(_produce(folder, process, case, scale.client_s))
            consumed.append(_consume(broker, process, log, scale.case_s))
    lines = [line for case, rounds in produced.items() for line in _producer_lines(case, rounds)]
    return [*lines, *_consumer_lines(consumed)]


@contextmanager
def _client_process() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        yield process


def _produce(folder: Path, process: Executor, case: Case, seconds: float) -> Produced:
    settings = dict(case.settings)
    with fresh_broker(folder) as broker:
        broker.create_topic(TOPIC)
        ours = settings | {"bootstrap.servers": broker.bootstrap_servers}
        before_s = broker.cpu_s()
        count, elapsed_s = process.submit(
            librdkafka.produce_for, TOPIC, ours, MESSAGE, seconds
        ).result()
        busy = (broker.cpu_s() - before_s) / elapsed_s
        broker.wait_for_end(TOPIC, count + 1)
    mock = settings | {"test.mock.num.brokers": "1"}
    mock_count, mock_s = process.submit(
        librdkafka.produce_for, TOPIC, mock, MESSAGE, seconds
    ).result()
    return Produced(count / elapsed_s, mock_count / mock_s, busy)


def _consume(broker: RunningBroker, process: Executor, log: StoredLog, seconds: float) -> Consumed:
    settings = {"bootstrap.servers": broker.bootstrap_servers, **CONSUMER_SETTINGS}
    count = log.end_offset
    timed, library_s = process.submit(librdkafka.consume, STORED, settings, count).result()
    objects_s = process.submit(consume_objects, broker.bootstrap_servers, STORED, count).result()
    raw = fetch(broker.address, log, FETCH_BYTES, 1, seconds)
    messages = raw.payload_bytes / log.batch_bytes * log.batch_records
    return Consumed(timed / library_s, count / objects_s, messages / raw.seconds)


def consume_objects(bootstrap_servers: str, topic: str, messages: int) -> float:
    """Read `messages` with confluent-kafka; return the seconds after the first one."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "log_level": 0,
        **CONSUMER_SETTINGS,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        left = messages - len(consumer.consume(1, TIMEOUT_S))
        start = perf_counter()
        while left:
            fetched = consumer.consume(min(left, CONSUMED_AT_ONCE), TIMEOUT_S)
            assert fetched, f"{left} of {messages} messages are missing"
            assert fetched[0].value() == MESSAGE
            left -= len(fetched)
        return perf_counter() - start


def _producer_lines(case: Case, rounds: list[Produced]) -> list[Line]:
    rate = median(each.rate for each in rounds)
    mock = Baseline("its own mock broker in C", median(each.mock_rate for each in rounds))
    busy = median(each.busy for each in rounds)
    return [
        Line(case.name, rate, "msg/s", mock, case.target),
        Line("  broker CPU per message", busy * 1e6 / rate, "us/msg"),
    ]


def _consumer_lines(rounds: list[Consumed]) -> list[Line]:
    raw = Baseline("raw fetch of 1 MB", median(each.raw for each in rounds))
    library = median(each.library for each in rounds)
    objects = median(each.objects for each in rounds)
    return [
        Line("librdkafka consumer", library, "msg/s", raw, at_least(2_000_000)),
        Line("confluent-kafka consumer, Python objects", objects, "msg/s", raw),
    ]
