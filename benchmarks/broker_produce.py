"""Measures Produce in messages/s, by batch size, acks and number of connections.

acks=0 and acks=1 are compared with a bare server that moves the same bytes, acks=all with acks=1.
Where the disk limits acks=all (one connection, or batches of 1 MB), the baseline is a file to
which five requests are appended and flushed, repeatedly. Every case has a fresh broker, and a
short warm-up with the same load.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bare_server import BareServer, bare_server
from benchmarks.disk import measure_flushes, measure_page_cache
from benchmarks.frames import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ProduceFrame,
    batch_of,
    encode_produce,
)
from benchmarks.produce_load import (
    Load,
    Sent,
    produce,
    produce_bare,
    send_once,
    stream,
    stream_bare,
)
from benchmarks.running_broker import RunningBroker, cpu_s, fresh_broker
from benchmarks.scale import Scale, median
from benchmarks.table import (
    Baseline,
    Line,
    Target,
    at_least,
    at_most,
    share_at_least,
)

TOPIC: Final = "load"
LARGE: Final = 4_700
"""Records of 200 bytes that make a batch just under 1 MB."""

WARM_UP_S: Final = 0.1
IN_FLIGHT: Final = 5
DEEP: Final = 1_000
ACKS_NAMES: Final = {ACKS_NONE: "0", ACKS_LEADER: "1", ACKS_ALL: "all"}


class Case(NamedTuple):
    """The records per batch, acks, connections, and unanswered requests per connection."""

    records: int
    acks: int
    connections: int
    in_flight: int = IN_FLIGHT

    def __str__(self) -> str:
        batch = "1 MB" if self.records == LARGE else str(self.records)
        flight = "" if self.acks == ACKS_NONE else f" x {self.in_flight:,}"
        return f"batch {batch}, acks {ACKS_NAMES[self.acks]}, {self.connections} conn{flight}"


class Measured(NamedTuple):
    """One case in one round: messages/s and CPU seconds per GB, of broker and bare server."""

    rate: float
    bare_rate: float
    cpu_s_per_gb: float
    bare_cpu_s_per_gb: float


CASES: Final = (
    *(Case(1, acks, 1, DEEP) for acks in (ACKS_LEADER, ACKS_ALL)),
    *(
        Case(records, acks, connections)
        for records in (1, 50, LARGE)
        for acks in (ACKS_NONE, ACKS_LEADER, ACKS_ALL)
        for connections in (1, 8, 64)
    ),
)

TARGETS: Final[dict[Case, Target]] = {
    Case(1, ACKS_LEADER, 1, DEEP): at_least(300_000),
    Case(1, ACKS_LEADER, 64): at_least(100_000),
    Case(50, ACKS_LEADER, 8): at_least(1_500_000),
    Case(1, ACKS_ALL, 64): share_at_least(0.8),
    Case(50, ACKS_ALL, 64): share_at_least(0.8),
}

GB_CASE: Final = Case(LARGE, ACKS_LEADER, 1)
"""The case whose cost depends on bytes, not on requests."""


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case against its baseline."""
    results: dict[Case, list[Measured]] = {case: [] for case in CASES}
    disk = _DiskRates(folder)
    with bare_server() as bare:
        for _ in range(scale.rounds):
            for case in CASES:
                results[case].append(_measure_case(folder, bare, case, scale.case_s))
            disk.measure(scale.case_s)
    return [*_rate_lines(results, disk), *_byte_lines(results, disk)]


class _DiskRates:
    """The rates of the disk alone with the same bytes, for each round."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.flushed: dict[int, list[float]] = {1: [], 50: [], LARGE: []}
        """Messages/s when the requests in flight are appended and flushed."""
        self.cached: dict[int, list[float]] = {1: [], 50: [], LARGE: []}
        """Bytes/s into the page cache, with calls as large as the broker's largest."""

    def measure(self, seconds: float) -> None:
        """Measure one round."""
        for records in self.flushed:
            batch = batch_of(records, _now_ms())
            per_s = measure_flushes(self._folder, [batch] * IN_FLIGHT, seconds)
            self.flushed[records].append(per_s * IN_FLIGHT * records)
            pieces = [batch] * max(1, min(DEEP, 2**20 // len(batch)))
            self.cached[records].append(measure_page_cache(self._folder, pieces, seconds))


def _measure_case(folder: Path, bare: BareServer, case: Case, seconds: float) -> Measured:
    batch = batch_of(case.records, _now_ms())
    request = encode_produce(TOPIC, batch, case.records, case.acks)
    load = Load(case.connections, case.in_flight, seconds)
    with fresh_broker(folder) as broker:
        broker.create_topic(TOPIC)
        probe = encode_produce(TOPIC, batch, case.records, ACKS_LEADER)
        warm_up = produce(broker.address, probe, load._replace(seconds=WARM_UP_S))
        sent, cpu = _with_cpu(broker.cpu_s, lambda: _produce(broker, request, probe, load))
        _check_stored(broker, probe, warm_up.requests + sent.requests, case)
    bare_sent, bare_cpu = _with_cpu(
        lambda: cpu_s(bare.process), lambda: _produce_bare(bare, request, load)
    )
    return Measured(
        sent.requests * case.records / sent.seconds,
        bare_sent.requests * case.records / bare_sent.seconds,
        cpu / (sent.requests * len(batch) / 1e9),
        bare_cpu / (bare_sent.requests * len(batch) / 1e9),
    )


def _produce(broker: RunningBroker, request: ProduceFrame, probe: ProduceFrame, load: Load) -> Sent:
    if request.acks == ACKS_NONE:
        return stream(broker.address, request, probe, load)
    return produce(broker.address, request, load)


def _check_stored(broker: RunningBroker, probe: ProduceFrame, requests: int, case: Case) -> None:
    """Check that the broker stored as many records as the generator sent."""
    probes = case.connections if case.acks == ACKS_NONE else 0
    stored = send_once(broker.address, probe)
    assert stored == (requests + probes) * case.records, (stored, requests, case)


def _produce_bare(bare: BareServer, request: ProduceFrame, load: Load) -> Sent:
    send = stream_bare if request.acks == ACKS_NONE else produce_bare
    return send(bare.address, request, load)


def _with_cpu(spent_s: Callable[[], float], send: Callable[[], Sent]) -> tuple[Sent, float]:
    before_s = spent_s()
    sent = send()
    return sent, spent_s() - before_s


def _rate_lines(results: dict[Case, list[Measured]], disk: _DiskRates) -> list[Line]:
    rates = {case: median(each.rate for each in of) for case, of in results.items()}
    return [
        Line(str(case), rate, "msg/s", _baseline(case, rates, results, disk), TARGETS.get(case))
        for case, rate in rates.items()
    ]


def _baseline(
    case: Case,
    rates: dict[Case, float],
    results: dict[Case, list[Measured]],
    disk: _DiskRates,
) -> Baseline:
    if case.acks != ACKS_ALL:
        return Baseline("bare socket", median(each.bare_rate for each in results[case]))
    if case.records == LARGE or (case.connections == 1 and case.in_flight == IN_FLIGHT):
        return Baseline("append 5 and fdatasync", median(disk.flushed[case.records]))
    return Baseline("acks 1", rates[case._replace(acks=ACKS_LEADER)])


def _byte_lines(results: dict[Case, list[Measured]], disk: _DiskRates) -> Iterable[Line]:
    """Yield the rate of large batches in bytes/s, and the CPU per gigabyte."""
    of = results[GB_CASE]
    batch_bytes = len(batch_of(LARGE, _now_ms()))
    bytes_per_s = median(each.rate for each in of) / LARGE * batch_bytes
    cached = Baseline("writev to page cache", median(disk.cached[LARGE]) / 1e6)
    yield Line("1 MB batches in, 1 conn", bytes_per_s / 1e6, "MB/s", cached, at_least(1_000))
    yield Line(
        "broker CPU per GB in, 1 MB batches",
        median(each.cpu_s_per_gb for each in of),
        "s/GB",
        Baseline("bare socket", median(each.bare_cpu_s_per_gb for each in of)),
        at_most(1.0),
    )
    for records, name in ((1, "1"), (50, "50"), (LARGE, "1 MB")):
        yield Line(f"page cache alone, batch {name}", median(disk.cached[records]) / 1e6, "MB/s")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
