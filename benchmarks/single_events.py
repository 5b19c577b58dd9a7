"""Measures single events from `POST /events` to the receiver: latency in ms, events/s, and CPU.

API, live path, worker and broker run with their defaults and SQLite. At a steady rate, latency is
measured from before an event is sent to its arrival at the receiver, and CPU is that of all
processes of the service. Then sixteen connections each publish one event after the other. Events
either match one of sixteen rules, or name their webhook, which saves one of two ways through the
log. The targets are figures of other webhook systems on a machine with two cores.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from app.domain.accounts import DEFAULT_ACCOUNT_NAME, Scope
from benchmarks.http_load import HttpRequest, encode, send_all
from benchmarks.live_load import BODY_BYTES, Latencies, latencies
from benchmarks.live_path import KINDS, WARM_UP_EVENTS, WEBHOOKS
from benchmarks.running_broker import cpu_s, until
from benchmarks.scale import Scale, median
from benchmarks.service_stage import UNLIMITED, service_stage
from benchmarks.table import Baseline, Line, at_least, at_most
from benchmarks.timing_receiver import TimingReceiver, timing_receiver

CONNECTIONS: Final = 16
RATE: Final = 200

P50_MS_MAX: Final = 2.2
P99_MS_MAX: Final = 9.2
CPU_S_MAX: Final = 2.0
EVENTS_PER_S_MIN: Final = 2_920
"""Twice the best rate of another webhook system."""


class Bench(NamedTuple):
    """The processes of the service by name, the API's address and key, and the receiver."""

    processes: Mapping[str, psutil.Process]
    url: str
    key: str
    webhook_ids: tuple[str, ...]
    receiver: TimingReceiver
    numbers: Iterator[int]
    """The numbers of the events, each of which has its own id."""

    def spent_s(self) -> dict[str, float]:
        """Return the CPU seconds of each process."""
        return {name: cpu_s(each) for name, each in self.processes.items()}


class Figures(NamedTuple):
    """One round: latencies at a steady rate, CPU seconds of 1,000 events, and the highest rate."""

    latency: Latencies
    cpu_s: Mapping[str, float]
    per_s: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure both kinds of events in each round."""
    rounds: dict[bool, list[Figures]] = {False: [], True: []}
    with _bench(folder) as bench:
        for is_addressed in rounds:
            _publish(bench, WARM_UP_EVENTS, is_addressed=is_addressed)
        for _ in range(scale.rounds):
            for is_addressed, figures in rounds.items():
                figures.append(_round(bench, scale, is_addressed=is_addressed))
    return [*_lines(rounds[False]), *_addressed_lines(rounds[True], rounds[False])]


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        stage = stack.enter_context(service_stage(folder, **UNLIMITED))
        receiver = stack.enter_context(timing_receiver())
        _, key = stage.store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, "bench")
        webhooks = [stage.enabled_webhook(f"{receiver.url}/{kind}") for kind in KINDS]
        for webhook, kind in zip(webhooks, KINDS, strict=True):
            stage.add_rule(webhook, kind)
        running = {
            name: stack.enter_context(stage.process(name)) for name in ("api", "live", "worker")
        }
        processes = {name: each.process for name, each in running.items()}
        webhook_ids = tuple(webhook.id for webhook in webhooks)
        url = running["api"].address
        processes["broker"] = stage.broker.process
        yield Bench(processes, url, key, webhook_ids, receiver, count_from())


def _round(bench: Bench, scale: Scale, *, is_addressed: bool) -> Figures:
    events = int(RATE * scale.live_s)
    before = bench.spent_s()
    published = _publish(bench, events, RATE, is_addressed=is_addressed)
    spent = bench.spent_s()
    latency = latencies(published, bench.receiver.arrivals(), published)
    published = _publish(bench, scale.live_events // 5, is_addressed=is_addressed)
    arrivals = bench.receiver.arrivals()
    taken_s = max(arrivals.values()) - min(published.values())
    cpu = {name: (spent[name] - before[name]) / events * 1_000 for name in spent}
    return Figures(latency, cpu, len(published) / taken_s)


def _publish(
    bench: Bench, count: int, rate: float = math.inf, *, is_addressed: bool
) -> dict[str, float]:
    """Publish events, and wait until all have arrived; the monotonic time of each in seconds."""
    ids = [f"evt_{number:010d}" for number in islice(bench.numbers, count)]
    requests = [
        _request(bench, event_id, number % WEBHOOKS, is_addressed=is_addressed)
        for number, event_id in enumerate(ids)
    ]
    bench.receiver.report()
    sent_s = send_all(bench.url, requests, CONNECTIONS, rate)
    until(lambda: bench.receiver.count() >= count, f"{count} events arrive", period_s=0.05)
    return dict(zip(ids, sent_s, strict=True))


def _request(bench: Bench, event_id: str, number: int, *, is_addressed: bool) -> HttpRequest:
    event: dict[str, object] = {"id": event_id, "type": KINDS[number]}
    if is_addressed:
        event["webhookId"] = bench.webhook_ids[number]
    event["data"] = {"text": "x" * (BODY_BYTES - len(json.dumps(event)))}
    return encode(
        "POST",
        "/events",
        key=bench.key,
        body=json.dumps(event).encode(),
        media_type="application/json",
        status=202,
    )


def _lines(rounds: list[Figures]) -> list[Line]:
    spent = [sum(each.cpu_s.values()) for each in rounds]
    target = at_least(EVENTS_PER_S_MIN)
    return [
        Line(f"p50 latency, {RATE} events/s", _p50(rounds), "ms", target=at_most(P50_MS_MAX)),
        Line(f"p99 latency, {RATE} events/s", _p99(rounds), "ms", target=at_most(P99_MS_MAX)),
        Line("CPU of 1,000 events, all processes", median(spent), "s", target=at_most(CPU_S_MAX)),
        *(
            Line(f"  {name}", median(each.cpu_s[name] for each in rounds), "s")
            for name in rounds[0].cpu_s
        ),
        Line(f"{CONNECTIONS} connections", _per_s(rounds), "events/s", target=target),
    ]


def _addressed_lines(rounds: list[Figures], matched: list[Figures]) -> list[Line]:
    name = "with a webhookId"
    p50, p99, per_s = (
        Baseline("events that match a rule", figure(matched)) for figure in (_p50, _p99, _per_s)
    )
    return [
        Line(f"{name}, p50 latency", _p50(rounds), "ms", p50),
        Line(f"{name}, p99 latency", _p99(rounds), "ms", p99),
        Line(f"{name}, {CONNECTIONS} connections", _per_s(rounds), "events/s", per_s),
    ]


def _p50(rounds: list[Figures]) -> float:
    return median(each.latency.p50 for each in rounds)


def _p99(rounds: list[Figures]) -> float:
    return median(each.latency.p99 for each in rounds)


def _per_s(rounds: list[Figures]) -> float:
    return median(each.per_s for each in rounds)
