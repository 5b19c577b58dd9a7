"""What is measured of a webhook system: missed events, single publishes, latency, idling."""

import datetime as dt
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import psutil

from benchmarks import http_load
from benchmarks.peers.webhooks.marked_receiver import Arrivals, MarkedReceiver
from benchmarks.peers.webhooks.systems import WebhookSystem
from benchmarks.running_broker import cpu_s
from benchmarks.table import Line

ACCEPTED: Final = 204
UNAVAILABLE: Final = 503
CONNECTIONS: Final = 16
STEADY_RATE: Final = 200.0
QUIET_S: Final = 5.0
"""A system has sent all it will send when this long nothing arrives."""

GIVE_UP_S: Final = 6 * QUIET_S
"""Events are reported as missing when this long none of a stage has arrived."""

RECORDED_S: Final = 60.0
"""Outpost writes its failed attempts with a delay of up to 10 seconds by default."""

POLL_S: Final = 0.05
RECORDED_POLL_S: Final = 0.5
"""A system may have to list all failures to answer."""

DEADLINE_S: Final = 600.0


class WebhookScale(NamedTuple):
    """Numbers of events, and seconds of a steady rate and of idling."""

    missed: int
    live: int
    steady_s: float
    idle_s: float

    @property
    def missed_numbers(self) -> range:
        """The events that are published while the receiver fails."""
        return range(self.missed)

    @property
    def live_numbers(self) -> range:
        """The events that are published as fast as the system accepts them."""
        return range(self.missed, self.missed + self.live)

    @property
    def steady_numbers(self) -> range:
        """The events that are published at the steady rate."""
        start = self.live_numbers.stop
        return range(start, start + int(STEADY_RATE * self.steady_s))


FULL: Final = WebhookScale(5_000, 5_000, 20.0, 30.0)
QUICK: Final = WebhookScale(200, 200, 1.0, 1.0)


class Cost:
    """The processor time of the processes of a system; without any, there is no figure."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]
        self._before_s = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._before_s = self._spent_s()

    def spent_s(self) -> float | None:
        """Return the CPU seconds since `start`."""
        return self._spent_s() - self._before_s if self._roots else None

    def _spent_s(self) -> float:
        """Return the CPU seconds of the processes and their children, ended ones included."""
        total_s = 0.0
        for root in self._roots:
            for process in (root, *root.children(recursive=True)):
                times = process.cpu_times()
                total_s += cpu_s(process) + times.children_user + times.children_system
        return total_s


@dataclass(frozen=True, slots=True)
class ArrivalWait:
    """Waits for arrivals at a receiver."""

    receiver: MarkedReceiver
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def for_events(self, numbers: range) -> None:
        """Wait until each of these events has arrived, or none has for `GIVE_UP_S`.

        Repeated events do not count: neither as many of them, nor one that is attempted forever.
        """
        self._wait(lambda: self.receiver.distinct(numbers), len(numbers), GIVE_UP_S)

    def for_quiet(self) -> None:
        """Wait until nothing has arrived for `QUIET_S`."""
        self._wait(self.receiver.count, math.inf, QUIET_S)

    def until_recorded(self, system: WebhookSystem, failures: int) -> None:
        """Wait until the system can bring this many failures, or for `RECORDED_S`."""
        deadline_s = self.now_s() + RECORDED_S
        while not system.has_recorded(failures) and self.now_s() < deadline_s:
            self.sleep(RECORDED_POLL_S)

    def _wait(self, count: Callable[[], int], enough: float, quiet_s: float) -> None:
        """Wait until a number is large enough, or has not changed for some time."""
        start_s = changed_s = self.now_s()
        last_count = count()
        while last_count < enough and self.now_s() < min(start_s + DEADLINE_S, changed_s + quiet_s):
            self.sleep(POLL_S)
            new_count = count()
            if new_count != last_count:
                last_count, changed_s = new_count, self.now_s()


class Brought(NamedTuple):
    """How a system sent missed events, in events/s and ms."""

    rate: float
    missing: int
    repeated: int
    first_ms: float


def brought(arrivals: Arrivals, asked_s: float, events: int) -> Brought:
    """Return the figures of events that arrived after the request at `asked_s`.

    The rate counts distinct events between the first arrival and the last first one.
    """
    first = sorted(arrivals.first_s.values())
    rate = (len(first) - 1) / (first[-1] - first[0]) if len(first) > 1 else math.nan
    first_ms = (first[0] - asked_s) * 1e3 if first else math.nan
    return Brought(rate, events - len(first), arrivals.repeated, first_ms)


class Stage(NamedTuple):
    """The figures of one stage; without arrivals the rates and times among them are NaN."""

    name: str
    lines: list[Line]
    has_arrivals: bool = True


def measure(
    system: WebhookSystem,
    receiver: MarkedReceiver,
    receiver_url: str,
    cost: Cost,
    scale: WebhookScale,
) -> list[Stage]:
    """Subscribe the receiver, and measure everything once."""
    receiver.answer(ACCEPTED)
    system.subscribe(receiver_url)
    stages = Stages(system, ArrivalWait(receiver), cost, scale)
    return [stages.missed(), stages.live(), stages.steady(), stages.idle()]


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a measurement of one system, whose receiver is subscribed."""

    system: WebhookSystem
    wait: ArrivalWait
    cost: Cost
    scale: WebhookScale

    @property
    def receiver(self) -> MarkedReceiver:
        """The receiver of all events."""
        return self.wait.receiver

    def missed(self) -> Stage:
        """Publish while the receiver fails, then ask for what it missed."""
        numbers = self.scale.missed_numbers
        since = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=2)
        self.receiver.answer(UNAVAILABLE)
        self._publish(numbers)
        # An event that is attempted for the first time after that would count as a missed one.
        self.wait.for_events(numbers)
        self.wait.for_quiet()
        attempted = self.receiver.distinct(numbers)
        self.wait.until_recorded(self.system, attempted)
        self.receiver.answer(ACCEPTED)
        self.cost.start()
        asked_s = time.monotonic()
        self.system.bring_missed(since)
        self.wait.for_events(numbers)
        spent_s = self.cost.spent_s()
        self.wait.for_quiet()
        found = brought(self.receiver.arrivals(), asked_s, len(numbers))
        lines = [
            Line("missed events sent again", found.rate, "events/s"),
            _missing_line(found.missing, numbers),
            Line("  sent twice", found.repeated, "events"),
            Line("  not attempted before", len(numbers) - attempted, "events"),
            Line("  from asking to the first arrival", found.first_ms, "ms"),
            *_cpu_line("  processor time for 1,000", spent_s, len(numbers)),
        ]
        return Stage("missed events", lines, found.missing < len(numbers))

    def live(self) -> Stage:
        """Publish as fast as the system accepts."""
        numbers = self.scale.live_numbers
        sent_s = self._publish(numbers)
        self.wait.for_events(numbers)
        first = self.receiver.arrivals().first_of(numbers)
        rate = len(first) / (max(first.values()) - min(sent_s)) if first else math.nan
        lines = [
            Line("single publishes, delivered live", rate, "events/s"),
            _missing_line(len(numbers) - len(first), numbers),
        ]
        return Stage("single publishes", lines, bool(first))

    def steady(self) -> Stage:
        """Publish at the steady rate."""
        numbers = self.scale.steady_numbers
        self.cost.start()
        sent_s = self._publish(numbers, STEADY_RATE)
        self.wait.for_events(numbers)
        spent_s = self.cost.spent_s()
        first = self.receiver.arrivals().first_of(numbers)
        taken_ms = [
            (first[number] - at_s) * 1e3
            for number, at_s in zip(numbers, sent_s, strict=True)
            if number in first
        ]
        p50_ms, p99_ms = _percentiles(taken_ms)
        lines = [
            Line("latency at 200/s, p50", p50_ms, "ms"),
            Line("latency at 200/s, p99", p99_ms, "ms"),
            _missing_line(len(numbers) - len(first), numbers),
            *_cpu_line("  processor time for 1,000", spent_s, len(numbers)),
        ]
        return Stage("latency at 200/s", lines, bool(first))

    def idle(self) -> Stage:
        """Measure the processor time without events."""
        self.cost.start()
        start_s = time.monotonic()
        time.sleep(self.scale.idle_s)
        spent_s = self.cost.spent_s()
        if spent_s is None:
            return Stage("idling", [])
        share = 100 * spent_s / (time.monotonic() - start_s)
        return Stage("idling", [Line("idle", share, "% core")])

    def _publish(self, numbers: range, rate: float = math.inf) -> list[float]:
        """Publish one event in each request; return when each request was sent."""
        requests = [self.system.publish_request(number) for number in numbers]
        return http_load.send_all(self.system.url, requests, CONNECTIONS, rate)


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99; NaN without values."""
    if not values:
        return math.nan, math.nan
    if len(values) == 1:
        return values[0], values[0]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def _missing_line(missing: int, numbers: range) -> Line:
    return Line(f"  missing of {len(numbers):,}", missing, "events")


def _cpu_line(name: str, spent_s: float | None, events: int) -> list[Line]:
    return [] if spent_s is None else [Line(name, spent_s * 1e3 / events, "s")]
