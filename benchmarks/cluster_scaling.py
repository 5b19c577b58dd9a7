"""Measures the same load on 1, 2 and 3 brokers of one machine, in messages/s and MB/s.

The baseline is one broker. Six partitions are spread over the brokers; the connections per
partition do not depend on its leader. One client thread sends all of the load. Its CPU is reported
as well: brokers, client and system share the cores, so it limits what another broker can add.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from benchmarks.fetch_load import StoredLog, fetch_spread
from benchmarks.frames import ACKS_ALL, ACKS_LEADER, ProduceFrame, batch_of, encode_produce
from benchmarks.produce_load import Address, Load, produce, produce_spread, send_once
from benchmarks.running_broker import RunningBroker
from benchmarks.running_cluster import RunningCluster, running_cluster
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line
from benchmarks.zookeeper_server import ZooKeeper, zookeeper_server

BROKERS: Final = (1, 2, 3)
PARTITIONS: Final = 6
"""A multiple of each number of brokers."""

CONNECTIONS: Final = 4
"""Connections to each partition."""

IN_FLIGHT: Final = 5
WARM_UP_S: Final = 0.1
STORED: Final = "stored"
STORED_RECORDS: Final = 50
STORED_S: Final = 0.1
"""Long enough to write some ten megabytes to each partition."""

FETCH_BYTES: Final = 64 * 2**10


class Case(NamedTuple):
    """One kind of load, and the unit of its rate."""

    name: str
    unit: str
    records: int
    """Records per batch."""


PRODUCE_CASES: Final = (
    Case("batch 50, acks 1", "msg/s", 50),
    Case("batch 1, acks 1", "msg/s", 1),
)
FETCH_CASE: Final = Case("fetch 64 KB", "MB/s", STORED_RECORDS)
CASES: Final = (*PRODUCE_CASES, FETCH_CASE)


class Cores(NamedTuple):
    """The CPU that each side used, in cores."""

    client: float
    brokers: float


class Measured(NamedTuple):
    """One case on one number of brokers in one round."""

    rate: float
    cores: Cores


Work = TypeVar("Work")


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case on each number of brokers."""
    results: dict[tuple[Case, int], list[Measured]] = {
        (case, count): [] for case in CASES for count in BROKERS
    }
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        zookeeper_server(Path(home, "zookeeper")) as zookeeper,
    ):
        for _ in range(scale.rounds):
            for count in BROKERS:
                for case, measured in _measure_brokers(Path(home), zookeeper, count, scale.case_s):
                    results[case, count].append(measured)
    return [line for case in CASES for line in _lines(case, results)]


def _measure_brokers(
    folder: Path, zookeeper: ZooKeeper, count: int, seconds: float
) -> Iterable[tuple[Case, Measured]]:
    """Measure every case on one fresh cluster, then wait until the disk is idle."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        running_cluster(Path(home), zookeeper.new_root(), count) as cluster,
    ):
        for case in PRODUCE_CASES:
            yield case, _measure_produce(cluster, case, seconds)
        yield FETCH_CASE, _measure_fetch(cluster, seconds)
    os.sync()


def _measure_produce(cluster: RunningCluster, case: Case, seconds: float) -> Measured:
    topic = f"load-{case.records}"
    leaders = cluster.create_topic(topic, PARTITIONS)
    batch = batch_of(case.records, _now_ms())
    targets = [
        (leader.address, encode_produce(topic, batch, case.records, ACKS_LEADER, partition))
        for partition, leader in enumerate(leaders)
    ]
    load = Load(CONNECTIONS, IN_FLIGHT, seconds)
    warm_up = produce_spread(targets, load._replace(seconds=WARM_UP_S))
    sent, cores = _with_cores(cluster, lambda: produce_spread(targets, load))
    _check_stored(targets, (warm_up.requests + sent.requests) * case.records)
    return Measured(sent.requests * case.records / sent.seconds, cores)


def _check_stored(targets: Sequence[tuple[Address, ProduceFrame]], records: int) -> None:
    """Check that the brokers stored as many records as the client sent."""
    stored = sum(send_once(address, request) for address, request in targets)
    assert stored == records, (stored, records)


def _measure_fetch(cluster: RunningCluster, seconds: float) -> Measured:
    leaders = cluster.create_topic(STORED, PARTITIONS)
    targets = [
        (leader.address, _store(leader, partition)) for partition, leader in enumerate(leaders)
    ]
    fetched, cores = _with_cores(
        cluster, lambda: fetch_spread(targets, FETCH_BYTES, CONNECTIONS, seconds)
    )
    return Measured(fetched.payload_bytes / 1e6 / fetched.seconds, cores)


def _store(leader: RunningBroker, partition: int) -> StoredLog:
    """Fill a partition with equal batches, and describe it."""
    batch = batch_of(STORED_RECORDS, _now_ms())
    request = encode_produce(STORED, batch, STORED_RECORDS, ACKS_ALL, partition)
    sent = produce(leader.address, request, Load(1, 200, STORED_S))
    end_offset = sent.requests * STORED_RECORDS
    leader.wait_for_end(STORED, end_offset, partition)
    return StoredLog(STORED, partition, len(batch), STORED_RECORDS, end_offset)


def _with_cores(cluster: RunningCluster, work: Callable[[], Work]) -> tuple[Work, Cores]:
    """Return the result of `work`, and the CPU that both sides used during it."""
    start, client_s, brokers_s = time.perf_counter(), time.process_time(), cluster.cpu_s()
    done = work()
    elapsed_s = time.perf_counter() - start
    return done, Cores(
        (time.process_time() - client_s) / elapsed_s, (cluster.cpu_s() - brokers_s) / elapsed_s
    )


def _lines(case: Case, results: dict[tuple[Case, int], list[Measured]]) -> Iterable[Line]:
    alone = Baseline("1 broker", median(each.rate for each in results[case, 1]))
    for count in BROKERS:
        rounds = results[case, count]
        rate = median(each.rate for each in rounds)
        plural = "broker" if count == 1 else "brokers"
        baseline = None if count == 1 else alone
        yield Line(f"{case.name}, {count} {plural}", rate, case.unit, baseline)
    of_all = results[case, BROKERS[-1]]
    yield Line(
        "  client CPU, 3 brokers",
        median(each.cores.client for each in of_all),
        "cores",
        Baseline("CPU of the 3 brokers", median(each.cores.brokers for each in of_all)),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
