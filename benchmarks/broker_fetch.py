"""Measures fetches from the page cache in MB/s, from 16 KB to 1 MB per request, and CPU per GB.

The baseline is a bare server that sends the same number of bytes by `sendfile`.
"""

import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bare_server import BareServer, bare_server
from benchmarks.fetch_load import Fetched, StoredLog, fetch, fetch_bare
from benchmarks.frames import ACKS_ALL, batch_of, encode_produce
from benchmarks.produce_load import Load, produce
from benchmarks.running_broker import RunningBroker, cpu_s, fresh_broker
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, Target, at_least, at_most

TOPIC: Final = "stored"
BATCH_RECORDS: Final = 50
LOAD_S: Final = 0.5
"""Long enough to write some hundred megabytes."""


class Case(NamedTuple):
    """The size of fetches, and the number of connections."""

    name: str
    bytes_max: int
    connections: int
    target: Target | None


CASES: Final = (
    Case("fetch 1 MB, 1 conn", 2**20, 1, at_least(2_000)),
    Case("fetch 64 KB, 1 conn", 64 * 2**10, 1, None),
    Case("fetch 64 KB, 8 conn", 64 * 2**10, 8, at_least(800)),
    Case("fetch 16 KB, 64 conn", 16 * 2**10, 64, at_least(200)),
)


class Measured(NamedTuple):
    """One case in one round, of the broker or of the bare server."""

    mb_per_s: float
    cpu_s_per_gb: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case, and the CPU per gigabyte."""
    ours: dict[Case, list[Measured]] = {case: [] for case in CASES}
    bare: dict[Case, list[Measured]] = {case: [] for case in CASES}
    with fresh_broker(folder) as broker, bare_server() as server:
        log = store_log(broker, TOPIC)
        for _ in range(scale.rounds):
            for case in CASES:
                ours[case].append(_measure_broker(broker, log, case, scale.case_s))
                bare[case].append(_measure_bare(server, case, scale.case_s))
    return [*(_line(case, ours[case], bare[case]) for case in CASES), _cpu_line(ours, bare)]


def store_log(broker: RunningBroker, topic: str) -> StoredLog:
    """Create a topic with one partition of some hundred megabytes of equal batches."""
    broker.create_topic(topic)
    batch = batch_of(BATCH_RECORDS, time.time_ns() // 1_000_000)
    request = encode_produce(topic, batch, BATCH_RECORDS, ACKS_ALL)
    sent = produce(broker.address, request, Load(1, 200, LOAD_S))
    end_offset = sent.requests * BATCH_RECORDS
    broker.wait_for_end(topic, end_offset)
    return StoredLog(topic, 0, len(batch), BATCH_RECORDS, end_offset)


def _measure_broker(broker: RunningBroker, log: StoredLog, case: Case, seconds: float) -> Measured:
    before_s = broker.cpu_s()
    fetched = fetch(broker.address, log, case.bytes_max, case.connections, seconds)
    return _measured(fetched, broker.cpu_s() - before_s)


def _measure_bare(server: BareServer, case: Case, seconds: float) -> Measured:
    before_s = cpu_s(server.process)
    fetched = fetch_bare(server.address, case.bytes_max, case.connections, seconds)
    return _measured(fetched, cpu_s(server.process) - before_s)


def _measured(fetched: Fetched, spent_s: float) -> Measured:
    gigabytes = fetched.payload_bytes / 1e9
    return Measured(gigabytes * 1e3 / fetched.seconds, spent_s / gigabytes)


def _line(case: Case, ours: list[Measured], bare: list[Measured]) -> Line:
    rate = median(each.mb_per_s for each in ours)
    baseline = Baseline("bare sendfile", median(each.mb_per_s for each in bare))
    return Line(case.name, rate, "MB/s", baseline, case.target)


def _cpu_line(ours: dict[Case, list[Measured]], bare: dict[Case, list[Measured]]) -> Line:
    case = CASES[0]
    cost = median(each.cpu_s_per_gb for each in ours[case])
    baseline = Baseline("bare sendfile", median(each.cpu_s_per_gb for each in bare[case]))
    return Line("broker CPU per GB out, 1 MB fetches", cost, "s/GB", baseline, at_most(0.4))
