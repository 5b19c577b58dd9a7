"""Measures a mirror between two brokers: records/s, CPU, and the delay in ms at half of that rate.

Records are like those of `delivery_log`: 200 bytes, a key, four headers, snappy. The rate is that
of a backlog: the mirror is stopped while the records are published. The delay of a record is the
time from its publication until a consumer at the destination has it. The baseline is a bare loop
with the same clients, stopped and resumed in the same way; the target is 80 % of its rate.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bare_mirror import CONSUMED_AT_ONCE, WAIT_S, Task, bare_mirror
from benchmarks.live_load import FLUSH_S, QUEUED_MAX, Latencies, latencies
from benchmarks.running_broker import RunningBroker, cpu_s, fresh_broker, until
from benchmarks.running_process import RunningProcess, running_process
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, share_at_least

TOPIC: Final = "mirrored"
COPY: Final = "bare_copy"
ORIGIN: Final = "east"
PARTITIONS: Final = 4
WARM_UP_RECORDS: Final = 1_000
BODY_BYTES: Final = 200
DEADLINE_S: Final = 120.0
BACKLOG_TARGET: Final = share_at_least(0.8)
TIMED_EVERY: Final = 20
"""One of this many records is timed; to time all of them would distort the result."""


class Bench(NamedTuple):
    """Both brokers, and the producer of the copied records."""

    source: RunningBroker
    destination: RunningBroker
    producer: Producer

    @property
    def servers(self) -> tuple[str, str]:
        """The addresses of source and destination."""
        return self.source.bootstrap_servers, self.destination.bootstrap_servers


class Figures(NamedTuple):
    """One round: records/s, CPU of the mirror per record, and the delay of records."""

    rate: float
    cpu_us: float
    bare_rate: float
    delay: Latencies
    bare_delay: Latencies


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure the mirror and the bare loop in each round."""
    with _bench(folder) as bench:
        return lines_of([_round(bench, scale) for _ in range(scale.rounds)])


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with fresh_broker(folder) as source, fresh_broker(folder) as destination:
        source.create_topic(TOPIC, PARTITIONS)
        for topic in (TOPIC, COPY):
            destination.create_topic(topic, PARTITIONS)
        settings = {
            "bootstrap.servers": source.bootstrap_servers,
            "compression.type": "snappy",
            "queue.buffering.max.messages": QUEUED_MAX,
            "linger.ms": 5,
            "log_level": 0,
        }
        yield Bench(source, destination, Producer(settings))


def _round(bench: Bench, scale: Scale) -> Figures:
    with _mirror(*bench.servers) as (mirror, _):
        _publish(bench, WARM_UP_RECORDS)
        # Includes the records published while the bare loop ran.
        _wait_for(bench.destination, TOPIC, _ends(bench.source, TOPIC))
        before_s = cpu_s(mirror)
        rate = _rate(bench, mirror, TOPIC, scale.mirrored_records)
        cpu_us = (cpu_s(mirror) - before_s) * 1e6 / scale.mirrored_records
        delay = _measure_delay(bench, TOPIC, rate / 2, scale.live_s)
    copied = _ends(bench.destination, COPY)
    with bare_mirror(Task(*bench.servers, TOPIC, COPY, PARTITIONS)) as pid:
        _publish(bench, WARM_UP_RECORDS)
        _wait_for(bench.destination, COPY, copied + WARM_UP_RECORDS)
        bare_rate = _rate(bench, psutil.Process(pid), COPY, scale.mirrored_records)
        bare_delay = _measure_delay(bench, COPY, rate / 2, scale.live_s)
    return Figures(rate, cpu_us, bare_rate, delay, bare_delay)


def _mirror(source: str, destination: str) -> AbstractContextManager[RunningProcess]:
    route = ("--from", source, "--to", destination, "--topics", TOPIC, "--origin", ORIGIN)
    return running_process(["-m", "logbroker", "mirror", *route], "logbroker mirror ready")


@contextmanager
def _stopped(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def _rate(bench: Bench, copier: psutil.Process, topic: str, records: int) -> float:
    """Return the records/s of a backlog that exists before the copier starts."""
    before = _ends(bench.destination, topic)
    with _stopped(copier):
        _publish(bench, records)
        start_s = time.monotonic()
    _wait_for(bench.destination, topic, before + records)
    return records / (time.monotonic() - start_s)


def _measure_delay(bench: Bench, topic: str, rate: float, seconds: float) -> Latencies:
    """Return the latencies from publication to arrival, for records at a steady rate."""
    published: dict[str, float] = {}
    with closing(_Arrivals(bench.destination, topic)) as arrivals:
        start_s = time.monotonic()
        for number in range(int(rate * seconds)):
            if number % TIMED_EVERY == 0:
                arrivals.poll()
                while time.monotonic() < start_s + number / rate:
                    arrivals.poll(WAIT_S / 10)
            name = f"{start_s:.6f}/{number}"
            _produce(bench.producer, name, number)
            if number % TIMED_EVERY == 0:
                published[name] = time.monotonic()

        def all_arrived() -> bool:
            arrivals.poll()
            return arrivals.has_all(published)

        until(all_arrived, "all records arrive", period_s=0.001)
        return latencies(published, arrivals.at_s, published)


class _Arrivals:
    """The arrival times of records at the destination, by the name at the start of their value."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.at_s: dict[str, float] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "arrivals",
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        ends = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        for end in ends:
            _, end.offset = self._consumer.get_watermark_offsets(end, FLUSH_S)
        self._consumer.assign(ends)

    def poll(self, wait_s: float = 0.0) -> None:
        """Store the arrival times of new records."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return
        now_s = time.monotonic()
        for message in (first, *self._consumer.consume(CONSUMED_AT_ONCE, 0)):
            name = (message.value() or b"").partition(b" ")[0].decode()
            self.at_s[name] = now_s

    def has_all(self, names: dict[str, float]) -> bool:
        """Return whether all of these have arrived."""
        return names.keys() <= self.at_s.keys()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _publish(bench: Bench, records: int) -> None:
    for number in range(records):
        _produce(bench.producer, f"{number}", number)
    left = bench.producer.flush(FLUSH_S)
    assert left == 0, f"{left} records are not acknowledged"


def _produce(producer: Producer, name: str, number: int) -> None:
    webhook = f"wh_{number % 1_000:06d}"
    producer.produce(
        TOPIC,
        f"{name} ".ljust(BODY_BYTES, "x").encode(),
        webhook.encode(),
        number % PARTITIONS,
        headers=[
            ("event-id", f"evt_{number:010d}".encode()),
            ("event-type", b"follow.created"),
            ("origin", ORIGIN.encode()),
            ("server", b"api-1"),
        ],
    )


def _wait_for(broker: RunningBroker, topic: str, records: int) -> None:
    until(
        lambda: _ends(broker, topic) >= records,
        f"{topic} has {records} records",
        period_s=0.01,
        deadline_s=DEADLINE_S,
    )


def _ends(broker: RunningBroker, topic: str) -> int:
    """Return the sum of the log end offsets of a topic's partitions."""
    return sum(broker.end(topic, each) for each in range(PARTITIONS))


def lines_of(rounds: list[Figures]) -> list[Line]:
    """Return the medians of the rounds beside those of the bare loop."""
    rate = median(each.rate for each in rounds)
    bare = Baseline("bare loop", median(each.bare_rate for each in rounds))
    p50, p99 = (median(getattr(each.delay, name) for each in rounds) for name in ("p50", "p99"))
    bare50, bare99 = (
        median(getattr(each.bare_delay, name) for each in rounds) for name in ("p50", "p99")
    )
    half = f"at {rate / 2:,.0f} records/s"
    return [
        Line("logbroker mirror, backlog", rate, "records/s", bare, BACKLOG_TARGET),
        Line("  mirror CPU per record", median(each.cpu_us for each in rounds), "us"),
        Line(f"delay p50 {half}", p50, "ms", Baseline("bare loop", bare50)),
        Line(f"delay p99 {half}", p99, "ms", Baseline("bare loop", bare99)),
    ]
