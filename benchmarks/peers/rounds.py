"""Measures each broker in each round: produce, bytes on the disk, consume.

Every broker is started in an empty folder in every round, and gets a warm-up. A round has all
brokers one after the other, so that other load on the machine affects all of them equally.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.peers import (
    kafka_protocol,
    nats_jetstream,
    rabbitmq_queues,
    rabbitmq_stream,
    redis_streams,
)
from benchmarks.peers.exchange import Limit, Progress, consume, produce
from benchmarks.peers.peer import Peer, PeerUnavailable, RunningPeer

PEERS: Final[Mapping[str, Peer]] = {
    peer.name: peer
    for peer in (
        kafka_protocol.LOGBROKER,
        kafka_protocol.KAFKA,
        redis_streams.REDIS,
        nats_jetstream.NATS,
        rabbitmq_stream.STREAM,
        kafka_protocol.LOGBROKER_FLUSHED,
        kafka_protocol.KAFKA_FLUSHED,
        redis_streams.REDIS_FLUSHED,
        rabbitmq_queues.CLASSIC,
        rabbitmq_queues.QUORUM,
    )
}

CPU_S_MIN: Final = 0.2
"""The kernel counts processor time in steps of 10 ms."""

REQUESTS_IN_FLIGHT: Final = {1: 1_000, 50: 100}
"""Unanswered requests by their number of messages: up to 5,000 messages, or a megabyte."""


class PeerScale(NamedTuple):
    """The size of a run."""

    rounds: int
    limit: Limit
    warm_up: Limit


FULL: Final = PeerScale(3, Limit(2_000_000, 8.0), Limit(100_000, 6.0))
QUICK: Final = PeerScale(1, Limit(20_000, 4.0), Limit(1_000, 1.0))


class Work(NamedTuple):
    """What one client did, and the processor time of both sides for each message."""

    progress: Progress
    broker_us: float | None
    """None if the broker used too little for the clock of the kernel."""
    client_us: float

    @property
    def client_cores(self) -> float:
        """How busy the client was: a client near 1 limits the rate."""
        return self.client_us * self.progress.rate / 1e6


class Figures(NamedTuple):
    """One broker with one size of batches in one round."""

    produced: Work
    disk_bytes: float
    """Bytes on the disk for each message."""
    consumed: Work


class Results(NamedTuple):
    """The rounds by name of the broker and size of batches, versions, and reasons of gaps."""

    figures: dict[tuple[str, int], list[Figures]]
    versions: dict[str, str]
    unavailable: dict[str, str]


def measure(names: Iterable[str], scale: PeerScale, folder: Path) -> Results:
    """Measure the named brokers in each round."""
    results = Results({}, {}, {})
    for _ in range(scale.rounds):
        for peer in (PEERS[name] for name in names):
            if peer.name in results.unavailable:
                continue
            try:
                _measure_peer(peer, scale, folder, results)
            except PeerUnavailable as error:
                results.unavailable[peer.name] = str(error)
    return results


def _measure_peer(peer: Peer, scale: PeerScale, folder: Path, results: Results) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as own, peer.run(Path(own)) as running:
        results.versions[peer.name] = running.version
        for batch in peer.batches:
            _measure_batch(running, f"warm-{batch}", batch, scale.warm_up)
            figures = _measure_batch(running, f"bench-{batch}", batch, scale.limit)
            results.figures.setdefault((peer.name, batch), []).append(figures)
    # Otherwise the next flush would include the time in which the file system frees the files.
    os.sync()


def _measure_batch(running: RunningPeer, log: str, batch: int, limit: Limit) -> Figures:
    running.create_log(log)
    before_bytes = running.disk_bytes()
    producer = running.producer(log, batch)
    with producer.sock:
        produced = _work(running, lambda: produce(producer, limit, REQUESTS_IN_FLIGHT[batch]))
    messages = produced.progress.messages
    disk_bytes = (running.disk_bytes() - before_bytes) / messages
    consumer = running.consumer(log, batch, messages)
    with consumer.sock:
        consumed = _work(running, lambda: consume(consumer, limit._replace(messages=messages)))
    return Figures(produced, disk_bytes, consumed)


def _work(running: RunningPeer, run: Callable[[], Progress]) -> Work:
    broker_s, client_s = running.cpu_s(), time.process_time()
    progress = run()
    broker_s, client_s = running.cpu_s() - broker_s, time.process_time() - client_s
    per_message = 1e6 / progress.messages
    broker_us = broker_s * per_message if broker_s >= CPU_S_MIN else None
    return Work(progress, broker_us, client_s * per_message)
