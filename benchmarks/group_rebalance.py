"""A consumer is killed: how long until its partitions are delivered from again.

Four consumers share twelve partitions, each in a process of its own, and one gets a SIGKILL. Time
begins when its death is noticed, which takes whatever session timeout was chosen: the group's
coordinator says that it rebalances, or the consumer's node has gone from ZooKeeper. It ends, for
each partition that has another owner then, with the first message that this one delivers.

By Kafka's protocol members learn of it from their next heartbeat, so the interval of these is the
baseline. The paper's consumers are told by ZooKeeper.
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
    Kafka,
    Members,
    Paper,
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
"""One after the other, round by round.

Members that joined together send their heartbeats together, so a session ends at the same point
between two heartbeats of the others each time: in the middle here, then early, then late.
"""

FEED_S: Final = 0.01
"""Between two messages of one partition."""

STABLE: Final = "Stable"


class Protocol(NamedTuple):
    """One way to share partitions."""

    name: str
    group: str
    consumer: Callable[[float], Consume]
    """Makes one, given a session timeout in seconds."""
    is_paper: bool = False


RANGE: Final = Protocol("Kafka's protocol, range", "range", partial(Kafka, "range", HEARTBEAT_S))
COOPERATIVE: Final = Protocol(
    "Kafka's, cooperative-sticky",
    "cooperative",
    partial(Kafka, "cooperative-sticky", HEARTBEAT_S),
)
PAPER: Final = Protocol("the paper's protocol", "paper", Paper, is_paper=True)
PROTOCOLS: Final = (RANGE, COOPERATIVE, PAPER)


class Rebalanced(NamedTuple):
    """One death: seconds from when it was noticed."""

    moved_s: list[float]
    """For each partition with a new owner, until that delivered from it."""
    pause_s: float
    """The longest time without a message of a partition that stayed where it was."""


class Stage(NamedTuple):
    """Where groups live: one broker, and ways to ask it and ZooKeeper."""

    cluster: RunningCluster
    tree: str
    broker: ColdConnection
    zookeeper: KazooClient


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Each protocol in each round, one after the other."""
    results: dict[Protocol, list[Rebalanced]] = {protocol: [] for protocol in PROTOCOLS}
    with tempfile.TemporaryDirectory(dir=folder) as home, _stage(Path(home)) as stage:
        sessions_s = itertools.islice(itertools.cycle(SESSIONS_S), scale.rounds)
        for number, session_s in enumerate(sessions_s):
            for protocol in PROTOCOLS:
                measured = _rebalance(stage, protocol, f"{protocol.group}-{number}", session_s)
                results[protocol].append(measured)
    return [line for protocol in PROTOCOLS for line in _lines(protocol, results)]


@contextmanager
def _stage(folder: Path) -> Iterator[Stage]:
    with zookeeper_server(folder / "zookeeper") as zookeeper:
        tree = zookeeper.fresh_tree()
        with running_cluster(folder, tree, 1) as cluster:
            client = KazooClient(tree)
            client.start()
            with cold_connection(cluster.brokers[1].address) as connection:
                yield Stage(cluster, tree, connection, client)
            client.stop()
            client.close()


def _rebalance(stage: Stage, protocol: Protocol, name: str, session_s: float) -> Rebalanced:
    """Form a group, kill the owner of partition 0, and wait until the others have all."""
    stage.cluster.create_topic(name, PARTITIONS)
    subscription = Subscription(stage.cluster.bootstrap_servers, stage.tree, name, name)
    is_whole = _is_whole(stage, protocol, name)
    with (
        _feed(stage.cluster.bootstrap_servers, name),
        group_members(CONSUMERS, protocol.consumer(session_s), subscription) as members,
    ):
        until(lambda: _share(members, SHARES) and is_whole(), "four share the partitions")
        return _kill_one(members, is_whole)


def _is_whole(stage: Stage, protocol: Protocol, group_id: str) -> Callable[[], bool]:
    """Whether nobody has noticed that a member is missing."""
    if not protocol.is_paper:
        return lambda: stage.broker.group_state(group_id) == STABLE
    ids = consumer_ids(group_id)
    return lambda: len(stage.zookeeper.get_children(ids)) == CONSUMERS


def _share(members: Members, shares: list[int]) -> bool:
    members.note()
    return members.shares() == shares


def _kill_one(members: Members, is_whole: Callable[[], bool]) -> Rebalanced:
    before = {partition: each.member for partition, each in members.last.items()}
    since: list[Delivery] = []

    def holds(condition: Callable[[], bool]) -> Callable[[], bool]:
        def noted() -> bool:
            since.extend(members.note())
            return condition()

        return noted

    members.kill(before[0])
    until(holds(lambda: not is_whole()), "the death is noticed")
    noticed_s = time.monotonic()
    until(holds(lambda: members.shares() == SHARES_AFTER), "three share the partitions")
    settled_s = time.monotonic()
    until(
        holds(lambda: all(each.time_s > settled_s for each in members.last.values())),
        "every partition goes on",
    )
    after = {partition: each.member for partition, each in members.last.items()}
    moved = {partition for partition in after if after[partition] != before[partition]}
    return Rebalanced(
        [
            min(each.time_s for each in _of(since, partition) if each.member == after[partition])
            - noticed_s
            for partition in moved
        ],
        max(_pause_s(_of(since, partition), noticed_s) for partition in after.keys() - moved),
    )


def _of(deliveries: Iterable[Delivery], partition: int) -> list[Delivery]:
    return [each for each in deliveries if each.partition == partition]


def _pause_s(deliveries: Iterable[Delivery], since_s: float) -> float:
    """The longest time between two deliveries of one member, the later of them after `since_s`."""
    return max(
        later.time_s - earlier.time_s
        for earlier, later in itertools.pairwise(deliveries)
        if later.time_s > since_s
    )


@contextmanager
def _feed(bootstrap_servers: str, topic: str) -> Iterator[None]:
    """A message to each partition every `FEED_S` seconds, from a thread beside."""
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
    yield Line("  the partition that waited longest", max(moved_ms), "ms", baseline, target)
    yield Line("  longest pause of one that stayed", pause_ms, "ms", baseline)


def _moved_ms(rounds: Iterable[Rebalanced]) -> list[float]:
    return [moved_s * 1e3 for each in rounds for moved_s in each.moved_s]
