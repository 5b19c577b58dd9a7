"""Measures a cluster of many topics: creation, Metadata requests, memory, start and stop.

Two brokers share the topics. The Metadata request for all topics, in ms, is compared with a bare
server that sends the same number of bytes. The broker encodes this response once for each view of
the cluster, so the first request after a change is measured separately. Creation, in seconds, is
compared with as many creates in ZooKeeper; memory, in MB, with one topic; start with no topics.
"""

import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from benchmarks.bare_server import ACKNOWLEDGE, BareServer, Terms, bare_server
from benchmarks.cold_requests import ColdConnection, cold_connection, encode_metadata
from benchmarks.running_broker import RunningBroker, running_broker, until
from benchmarks.running_cluster import broker_options
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, at_most
from benchmarks.zookeeper_server import ZooKeeper, zookeeper_server

PARTITIONS: Final = 8
TOPICS_PER_REQUEST: Final = 100
CREATE_S: Final = 300.0
NODE_BYTES: Final = 300
"""The approximate size of a topic in ZooKeeper."""

CHANGES: Final = 5
"""The number of changes, each followed by one request for all topics."""


class RequestTimes(NamedTuple):
    """Milliseconds from a request to the end of its response."""

    one_ms: float
    all_ms: float
    first_ms: float
    bare_ms: float
    response_bytes: int


class Measured(NamedTuple):
    """One round; times in seconds, memory in units of 10**6 bytes."""

    created_s: float
    registered_s: float
    seen_s: float
    requests: RequestTimes
    few_mb: float
    many_mb: float
    empty_start_s: float
    start_s: float
    stop_s: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure each round with two fresh brokers."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        zookeeper_server(Path(home, "zookeeper")) as zookeeper,
        bare_server() as bare,
    ):
        rounds = [
            _measure_round(Path(home, str(number)), zookeeper, bare, scale)
            for number in range(scale.rounds)
        ]
    return list(_lines(scale.topics, rounds))


def _measure_round(folder: Path, zookeeper: ZooKeeper, bare: BareServer, scale: Scale) -> Measured:
    tree = zookeeper.new_root()
    here, there = folder / "here", folder / "there"
    with running_broker(there, options=broker_options(2, tree), keeps_data=False) as other:
        begin = time.perf_counter()
        with running_broker(here, options=broker_options(1, tree)) as broker:
            empty_start_s = time.perf_counter() - begin
            broker.create_topic("first", PARTITIONS)
            with cold_connection(broker.address) as connection:
                until(
                    lambda: len(connection.get_metadata([]).brokers) == 2, "both brokers are alive"
                )
                few_mb = _resident_mb(broker, connection)
                created_s, seen_s = _create(broker, other, scale.topics)
                requests = _measure_requests(broker, connection, bare, scale.case_s)
                many_mb = _resident_mb(broker, connection)
            begin = time.perf_counter()
        stop_s = time.perf_counter() - begin
        begin = time.perf_counter()
        with running_broker(here, options=broker_options(1, tree), keeps_data=False):
            start_s = time.perf_counter() - begin
    registered_s = _create_nodes(zookeeper, scale.topics)
    return Measured(
        created_s=created_s,
        registered_s=registered_s,
        seen_s=seen_s,
        requests=requests,
        few_mb=few_mb,
        many_mb=many_mb,
        empty_start_s=empty_start_s,
        start_s=start_s,
        stop_s=stop_s,
    )


def _create(broker: RunningBroker, other: RunningBroker, count: int) -> tuple[float, float]:
    """Create topics at one broker; return the seconds, and those until the other knows them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    names = [f"topic-{number:04}" for number in range(count)]
    begin = time.perf_counter()
    for start in range(0, count, TOPICS_PER_REQUEST):
        some = [NewTopic(name, PARTITIONS) for name in names[start : start + TOPICS_PER_REQUEST]]
        for created in admin.create_topics(some, operation_timeout=CREATE_S).values():
            created.result()
    created_s = time.perf_counter() - begin
    with cold_connection(other.address) as connection:
        # Views are applied in order, so a broker that knows the last topic knows all.
        until(
            lambda: connection.get_metadata(names[-1:]).topics[0].error_code == 0,
            "the other broker has all topics",
        )
        seen_s = time.perf_counter() - begin - created_s
        assert len(connection.get_metadata(None).topics) == count + 1
    return created_s, seen_s


def _create_nodes(zookeeper: ZooKeeper, count: int) -> float:
    """Return the seconds of as many creates in ZooKeeper alone, one after the other."""
    tree = f"/creates-{zookeeper.new_root().rpartition('/')[2]}"
    client = KazooClient(zookeeper.address)
    client.start()
    client.create(tree)
    begin = time.perf_counter()
    for number in range(count):
        client.create(f"{tree}/topic-{number:04}", bytes(NODE_BYTES))
    elapsed_s = time.perf_counter() - begin
    client.stop()
    client.close()
    return elapsed_s


def _measure_requests(
    broker: RunningBroker, connection: ColdConnection, bare: BareServer, seconds: float
) -> RequestTimes:
    first_ms = median(_measure_after_change(broker, connection, n) for n in range(CHANGES))
    one, everything = encode_metadata(["first"]), encode_metadata(None)
    response_bytes = len(connection.exchange(everything))
    return RequestTimes(
        _median_ms(lambda: connection.exchange(one), seconds),
        _median_ms(lambda: connection.exchange(everything), seconds),
        first_ms,
        _bare_ms(bare, everything, response_bytes, seconds),
        response_bytes,
    )


def _measure_after_change(broker: RunningBroker, connection: ColdConnection, number: int) -> float:
    broker.create_topic(f"change-{number}", PARTITIONS)
    return _median_ms(lambda: connection.exchange(encode_metadata(None)), 0)


def _median_ms(exchange: Callable[[], object], seconds: float) -> float:
    """Return the median time of an exchange, of at least one."""
    taken_s: list[float] = []
    deadline = time.perf_counter() + seconds
    while not taken_s or time.perf_counter() < deadline:
        begin = time.perf_counter()
        exchange()
        taken_s.append(time.perf_counter() - begin)
    return median(taken_s) * 1e3


def _bare_ms(bare: BareServer, frame: bytes, response_bytes: int, seconds: float) -> float:
    """Return the median time of an exchange with a bare server that sends as many bytes."""
    terms = Terms(ACKNOWLEDGE, len(frame), response_bytes)
    buffer = bytearray(response_bytes)
    with socket.create_connection(bare.address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(terms.encode())

        def exchange() -> None:
            sock.sendall(frame)
            assert sock.recv_into(buffer, response_bytes, socket.MSG_WAITALL) == response_bytes

        return _median_ms(exchange, seconds)


def _resident_mb(broker: RunningBroker, connection: ColdConnection) -> float:
    """Return the resident memory after a request for all topics."""
    connection.exchange(encode_metadata(None))
    return broker.resident_mb()


def _lines(count: int, rounds: list[Measured]) -> Iterable[Line]:
    topics = f"{count:,} topics"
    requests = [each.requests for each in rounds]
    bare = Baseline("bare socket, same bytes", median(each.bare_ms for each in requests))
    nodes = Baseline("as many creates, ZooKeeper", median(each.registered_s for each in rounds))
    few = Baseline("1 topic", median(each.few_mb for each in rounds))
    empty = Baseline("no topics", median(each.empty_start_s for each in rounds))
    seen_ms = median(each.seen_s for each in rounds) * 1e3
    all_ms = median(each.all_ms for each in requests)
    many_mb = median(each.many_mb for each in rounds)
    yield Line(f"{topics} created", median(each.created_s for each in rounds), "s", nodes)
    yield Line("  until the other broker knows them", seen_ms, "ms", target=at_most(500))
    yield Line("Metadata of 1 topic", median(each.one_ms for each in requests), "ms")
    yield Line(f"Metadata of {topics}", all_ms, "ms", bare, at_most(2))
    yield Line(
        "  size of the response", median(each.response_bytes for each in requests) / 1e3, "KB"
    )
    yield Line("  first request after a change", median(each.first_ms for each in requests), "ms")
    yield Line(f"resident, {topics}", many_mb, "MB", few, at_most(150))
    yield Line(f"start to ready, {topics}", median(each.start_s for each in rounds), "s", empty)
    yield Line(f"stop, {topics}", median(each.stop_s for each in rounds), "s")
