"""Measures the cost of the audit in messages/s, for a producer and for a consumer.

A producer that marks and counts its messages is compared with one that does not. Both send sets of
200-byte messages, each set to one partition, wait for all acknowledgements at the end, and run in a
separate process. A consumer that counts the audited producer's messages is compared with one that
reads their headers only.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.frames import MESSAGE
from benchmarks.running_broker import RunningBroker, fresh_broker
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line
from logbroker.client.audit_format.mark import AUDIT_HEADER
from logbroker.client.received_counter import ReceivedCounter
from logbroker.consumer import AuditedProducer, Producer

PLAIN: Final = "plain"
AUDITED: Final = "audited"
SET_SIZES: Final = (50, 1)
CONSUMED_AT_ONCE: Final = 10_000
TIMEOUT_S: Final = 10.0


class Task(NamedTuple):
    """The number of sets to send to a topic, and the messages per set."""

    bootstrap_servers: str
    topic: str
    sets: int
    size: int


class Figures(NamedTuple):
    """One round, in messages/s without and with the audit; `produced` by size of set."""

    produced: dict[int, tuple[float, float]]
    consumed: tuple[float, float]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round, without and with the audit in turn."""
    options = ("--auto-create-topics",)
    with fresh_broker(folder, options=options) as broker, _client_process() as process:
        return _lines([_round(broker, process, scale) for _ in range(scale.rounds)])


@contextmanager
def _client_process() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        yield process


def _round(broker: RunningBroker, process: Executor, scale: Scale) -> Figures:
    servers, produced = broker.bootstrap_servers, {}
    for size in SET_SIZES:
        plain, audited = (
            Task(servers, f"{kind}-{size}", scale.audited_sets, size) for kind in (PLAIN, AUDITED)
        )
        produced[size] = (
            process.submit(produce, plain).result(),
            process.submit(produce_audited, audited).result(),
        )
    stored = f"{AUDITED}-{SET_SIZES[0]}"
    consumed = [
        process.submit(consume, servers, stored, broker.end(stored), counts).result()
        for counts in (False, True)
    ]
    return Figures(produced, (consumed[0], consumed[1]))


def produce(task: Task) -> float:
    """Return the messages/s of a plain producer."""
    with Producer(task.bootstrap_servers) as producer:
        return _produce(producer, task)


def produce_audited(task: Task) -> float:
    """Return the messages/s of a producer that marks and counts."""
    with AuditedProducer(task.bootstrap_servers, server="bench-1") as producer:
        return _produce(producer, task)


def _produce(producer: Producer | AuditedProducer, task: Task) -> float:
    producer.send(task.topic, [MESSAGE]).result()  # opens connections, creates the topic
    messages = [MESSAGE] * task.size
    start_s = perf_counter()
    sent = [producer.send(task.topic, messages) for _ in range(task.sets)]
    for each in sent:
        each.result()
    return task.sets * task.size / (perf_counter() - start_s)


def consume(bootstrap_servers: str, topic: str, messages: int, counts: bool) -> float:
    """Return the messages/s of a consumer after its first messages, with or without counting."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
        "log_level": 0,
    }
    counter = ReceivedCounter("bench", "bench-1")
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        left = messages - len(consumer.consume(1, TIMEOUT_S))
        timed, start_s = left, perf_counter()
        while left:
            fetched = consumer.consume(min(left, CONSUMED_AT_ONCE), TIMEOUT_S)
            assert fetched, f"{left} of {messages} messages are missing"
            left -= len(fetched)
            for message in fetched:
                # Both cases read the headers; only the counting differs.
                mark = dict(message.headers() or ()).get(AUDIT_HEADER)
                assert isinstance(mark, bytes)
                if counts:
                    counter.count_message(topic, mark)
        elapsed_s = perf_counter() - start_s
    assert bool(counter.take_reports()) is counts
    return timed / elapsed_s


def _lines(rounds: list[Figures]) -> list[Line]:
    lines = []
    for size in SET_SIZES:
        plain, audited = (median(each.produced[size][kind] for each in rounds) for kind in (0, 1))
        lines += [
            Line(f"Producer, sets of {size}", plain, "msg/s"),
            Line(
                f"AuditedProducer, sets of {size}", audited, "msg/s", Baseline("not audited", plain)
            ),
        ]
    plain, counting = (median(each.consumed[kind] for each in rounds) for kind in (0, 1))
    return [
        *lines,
        Line("consumer that reads headers", plain, "msg/s"),
        Line("consumer that counts", counting, "msg/s", Baseline("not counting", plain)),
    ]
