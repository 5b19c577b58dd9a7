"""Measures the rebalance after a consumer was killed: ms until its partitions are read again.

Four consumers share twelve partitions, each in a separate process, and one is killed with SIGKILL.
The clock starts when the death is detected, so the session timeout is not included: the group
coordinator reports a rebalance, or the consumer's node is gone from ZooKeeper. It stops, for each
partition with a new owner, at the first message that the new owner delivers.

In Kafka's protocol, members learn of the rebalance from their next heartbeat, so the baseline is
the heartbeat interval. The paper's consumers are notified by ZooKeeper; their baseline is Kafka's
protocol.
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from kazoo.client import KazooClient

from benchmarks.cold_requests import ColdConnection, cold_connection
from benchmarks.group_member import (
    Consume,
    Delivery,
    KafkaMember,
    Members,
    PaperMember,
    Subscription,
    group_members,
)
from benchmarks.running_broker import until
from benchmarks.running_cluster import RunningCluster, running_cluster
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, at_most, share_at_most
from benchmarks.zookeeper_server import zookeeper_server
from logbroker.registry.zookeeper.paths import consumer_ids

PARTITIONS: Final = 12
CONSUMERS: Final = 4
SHARES: Final = [PARTITIONS // CONSUMERS] * CONSUMERS
SHARES_AFTER: Final = [PARTITIONS // (CONSUMERS - 1)] * (CONSUMERS - 1)

HEARTBEAT_S: Final = 3.0
"""librdkafka's default."""

SESSIONS_S: Final = (7.5, 6.5, 8.5)
"""The session timeout of each round.

Members that join together send their heartbeats together, so a session timeout determines the
point between two heartbeats at which the session ends: midway, early, late.
"""

FEED_S: Final = 0.01
"""Seconds between two messages of one partition."""

STABLE: Final = "Stable"


class Protocol(NamedTuple):
    """One protocol that shares partitions."""

    name: str
    group: str
    consumer: Callable[[float], Consume]
    """Creates a consumer, given a session timeout in seconds."""
    is_paper: bool = False


RANGE: Final = Protocol(
    "Kafka's protocol, range", "range", partial(KafkaMember, "range", HEARTBEAT_S)
)
COOPERATIVE: Final = Protocol(
    "Kafka's, cooperative-sticky",
    "cooperative",
    partial(KafkaMember, "cooperative-sticky", HEARTBEAT_S),
)
PAPER: Final = Protocol("the paper's protocol", "paper", PaperMember, is_paper=True)
PROTOCOLS: Final = (RANGE, COOPERATIVE, PAPER)


class Rebalanced(NamedTuple):
    """The rebalance after one death; times in seconds."""

    moved_s: list[float]
    """For each partition with a new owner: from the detection to the first message."""
    pause_s: float
    """The longest time without a message of a partition whose owner did not change."""


class Bench(NamedTuple):
    """A cluster of one broker, with connections to the broker and to ZooKeeper."""

    cluster: RunningCluster
    tree: str
    broker: ColdConnection
    zookeeper: KazooClient


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure each protocol in each round."""
    results: dict[Protocol, list[Rebalanced]] = {protocol: [] for protocol in PROTOCOLS}
    with tempfile.TemporaryDirectory(dir=folder) as home, _bench(Path(home)) as bench:
        sessions_s = itertools.islice(itertools.cycle(SESSIONS_S), scale.rounds)
        for number, session_s in enumerate(sessions_s):
            for protocol in PROTOCOLS:
                measured = _rebalance(bench, protocol, f"{protocol.group}-{number}", session_s)
                results[protocol].append(measured)
    return [line for protocol in PROTOCOLS for line in _lines(protocol, results)]


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with zookeeper_server(folder / "zookeeper") as zookeeper:
        tree = zookeeper.new_root()
        with running_cluster(folder, tree, 1) as cluster:
            client = KazooClient(tree)
            client.start()
            with cold_connection(cluster.brokers[1].address) as connection:
                yield Bench(cluster, tree, connection, client)
            client.stop()
            client.close()


def _rebalance(bench: Bench, protocol: Protocol, name: str, session_s: float) -> Rebalanced:
    """Form a group, kill the owner of partition 0, and wait until the others own all partitions."""
    bench.cluster.create_topic(name, PARTITIONS)
    subscription = Subscription(bench.cluster.bootstrap_servers, bench.tree, name, name)
    has_all_members = _has_all_members(bench, protocol, name)
    with (
        _feed(bench.cluster.bootstrap_servers, name),
        group_members(CONSUMERS, protocol.consumer(session_s), subscription) as members,
    ):
        until(
            lambda: _have_shares(members, SHARES) and has_all_members(), "four share the partitions"
        )
        return _kill_one(members, has_all_members)


def _has_all_members(bench: Bench, protocol: Protocol, group_id: str) -> Callable[[], bool]:
    """Return a condition that is true until the death of a member is detected."""
    if not protocol.is_paper:
        return lambda: bench.broker.get_group_state(group_id) == STABLE
    ids = consumer_ids(group_id)
    return lambda: len(bench.zookeeper.get_children(ids)) == CONSUMERS


def _have_shares(members: Members, shares: list[int]) -> bool:
    members.poll()
    return members.shares() == shares


def _kill_one(members: Members, has_all_members: Callable[[], bool]) -> Rebalanced:
    before = {partition: each.member for partition, each in members.last.items()}
    since: list[Delivery] = []

    def polled(condition: Callable[[], bool]) -> Callable[[], bool]:
        def poll() -> bool:
            since.extend(members.poll())
            return condition()

        return poll

    members.kill(before[0])
    until(polled(lambda: not has_all_members()), "the death is detected")
    detected_s = time.monotonic()
    until(polled(lambda: members.shares() == SHARES_AFTER), "three share the partitions")
    settled_s = time.monotonic()
    until(
        polled(lambda: all(each.time_s > settled_s for each in members.last.values())),
        "every partition is read again",
    )
    after = {partition: each.member for partition, each in members.last.items()}
    moved = {partition for partition in after if after[partition] != before[partition]}
    return Rebalanced(
        [
            min(each.time_s for each in _of(since, partition) if each.member == after[partition])
            - detected_s
            for partition in moved
        ],
        max(_pause_s(_of(since, partition), detected_s) for partition in after.keys() - moved),
    )


def _of(deliveries: Iterable[Delivery], partition: int) -> list[Delivery]:
    return [each for each in deliveries if each.partition == partition]


def _pause_s(deliveries: Iterable[Delivery], since_s: float) -> float:
    """Return the longest time between two deliveries, of which the later one is after `since_s`."""
    return max(
        later.time_s - earlier.time_s
        for earlier, later in itertools.pairwise(deliveries)
        if later.time_s > since_s
    )


@contextmanager
def _feed(bootstrap_servers: str, topic: str) -> Iterator[None]:
    """Produce a message to each partition every `FEED_S` seconds, from a separate thread."""
    ends = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def feed() -> None:
        while not ends.wait(FEED_S):
            for partition in range(PARTITIONS):
                producer.produce(topic, b"fed", partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        producer.flush()


def _lines(protocol: Protocol, results: dict[Protocol, list[Rebalanced]]) -> Iterable[Line]:
    moved_ms = _moved_ms(results[protocol])
    pause_ms = median(each.pause_s for each in results[protocol]) * 1e3
    baseline, target = Baseline("heartbeat interval", HEARTBEAT_S * 1e3), share_at_most(1.2)
    if protocol.is_paper:
        baseline = Baseline(RANGE.name, median(_moved_ms(results[RANGE])))
        target = at_most(1_000)
    yield Line(protocol.name, median(moved_ms), "ms", baseline)
    yield Line("  slowest partition that moved", max(moved_ms), "ms", baseline, target)
    yield Line("  longest pause of one that did not move", pause_ms, "ms", baseline)


def _moved_ms(rounds: Iterable[Rebalanced]) -> list[float]:
    return [moved_s * 1e3 for each in rounds for moved_s in each.moved_s]
