"""What is measured of a webhook system: missed events, single publishes, latency, idling."""

import datetime as dt
import math
import statistics
import time
from collections.abc import Callable, Sequence
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
"""A system has noted all failures, or sent all it will send, when this long nothing arrives."""

POLL_S: Final = 0.05
DEADLINE_S: Final = 600.0


class WebhookScale(NamedTuple):
    """Numbers of events, and seconds of a steady rate and of idling."""

    missed: int
    live: int
    steady_s: float
    idle_s: float


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


class Brought(NamedTuple):
    """How a system sent missed events, in events/s and ms."""

    rate: float
    missing: int
    repeated: int
    first_ms: float


def measure(
    system: WebhookSystem,
    receiver: MarkedReceiver,
    receiver_url: str,
    cost: Cost,
    scale: WebhookScale,
) -> list[Line]:
    """Subscribe the receiver, and measure everything once."""
    receiver.answer(ACCEPTED)
    system.subscribe(receiver_url)
    return [
        *_measure_missed(system, receiver, cost, scale.missed),
        *_measure_live(system, receiver, scale),
        *_measure_steady(system, receiver, cost, scale),
        *_measure_idle(cost, scale.idle_s),
    ]


def brought(arrivals: Arrivals, asked_s: float, events: int) -> Brought:
    """Return the figures of events that arrived after the request at `asked_s`.

    The rate counts distinct events between the first arrival and the last first one.
    """
    first = sorted(arrivals.first_s.values())
    if len(first) < 2:
        return Brought(math.nan, events - len(first), arrivals.repeated, math.nan)
    rate = (len(first) - 1) / (first[-1] - first[0])
    return Brought(rate, events - len(first), arrivals.repeated, (first[0] - asked_s) * 1e3)


def _measure_missed(
    system: WebhookSystem, receiver: MarkedReceiver, cost: Cost, events: int
) -> list[Line]:
    since = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=2)
    receiver.answer(UNAVAILABLE)
    _publish(system, 0, events)
    _wait_until_quiet(receiver)
    receiver.answer(ACCEPTED)
    cost.start()
    asked_s = time.monotonic()
    system.bring_missed(since)
    _wait_until(lambda: receiver.count() >= events, receiver)
    spent_s = cost.spent_s()
    _wait_until_quiet(receiver)
    found = brought(receiver.arrivals(), asked_s, events)
    return [
        Line("missed events sent again", found.rate, "events/s"),
        Line(f"  missing of {events:,}", found.missing, "events"),
        Line("  sent twice", found.repeated, "events"),
        Line("  from asking to the first arrival", found.first_ms, "ms"),
        *_cpu_line("  processor time for 1,000", spent_s, events),
    ]


def _measure_live(
    system: WebhookSystem, receiver: MarkedReceiver, scale: WebhookScale
) -> list[Line]:
    first_number = scale.missed
    sent_s = _publish(system, first_number, scale.live)
    _wait_until(lambda: receiver.count() >= scale.live, receiver)
    first = receiver.arrivals().first_s
    rate = len(first) / (max(first.values()) - min(sent_s))
    return [
        Line("single publishes, delivered live", rate, "events/s"),
        Line(f"  missing of {scale.live:,}", scale.live - len(first), "events"),
    ]


def _measure_steady(
    system: WebhookSystem, receiver: MarkedReceiver, cost: Cost, scale: WebhookScale
) -> list[Line]:
    first_number, events = scale.missed + scale.live, int(STEADY_RATE * scale.steady_s)
    cost.start()
    sent_s = _publish(system, first_number, events, STEADY_RATE)
    _wait_until(lambda: receiver.count() >= events, receiver)
    spent_s = cost.spent_s()
    first = receiver.arrivals().first_s
    taken_ms = [
        (first[first_number + place] - at_s) * 1e3
        for place, at_s in enumerate(sent_s)
        if first_number + place in first
    ]
    cuts = statistics.quantiles(taken_ms, n=100, method="inclusive")
    return [
        Line("latency at 200/s, p50", cuts[49], "ms"),
        Line("latency at 200/s, p99", cuts[98], "ms"),
        *_cpu_line("  processor time for 1,000", spent_s, events),
    ]


def _measure_idle(cost: Cost, seconds: float) -> list[Line]:
    cost.start()
    start_s = time.monotonic()
    time.sleep(seconds)
    spent_s = cost.spent_s()
    if spent_s is None:
        return []
    return [Line("idle", 100 * spent_s / (time.monotonic() - start_s), "% core")]


def _cpu_line(name: str, spent_s: float | None, events: int) -> list[Line]:
    return [] if spent_s is None else [Line(name, spent_s * 1e3 / events, "s")]


def _publish(system: WebhookSystem, first: int, events: int, rate: float = math.inf) -> list[float]:
    """Publish one event in each request; return when each request was sent."""
    requests = [system.publish_request(number) for number in range(first, first + events)]
    return http_load.send_all(system.url, requests, CONNECTIONS, rate)


def _wait_until(is_done: Callable[[], bool], receiver: MarkedReceiver) -> None:
    """Wait for a condition, or until nothing has arrived for long enough to give up."""
    deadline_s = time.monotonic() + DEADLINE_S
    last_count, changed_s = -1, time.monotonic()
    while not is_done() and time.monotonic() < deadline_s:
        count = receiver.count()
        if count != last_count:
            last_count, changed_s = count, time.monotonic()
        elif time.monotonic() - changed_s > 6 * QUIET_S:
            return
        time.sleep(POLL_S)


def _wait_until_quiet(receiver: MarkedReceiver) -> None:
    """Wait until nothing has arrived for `QUIET_S`."""
    last_count, changed_s = receiver.count(), time.monotonic()
    while time.monotonic() - changed_s < QUIET_S:
        time.sleep(POLL_S)
        count = receiver.count()
        if count != last_count:
            last_count, changed_s = count, time.monotonic()
