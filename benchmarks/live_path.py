"""Measures the live path from `events` to receivers: events/s, CPU, and latency in ms.

One `rewind live` with its defaults is compared with a bare loop that consumes and POSTs. Each of
sixteen webhooks has a rule for one event type and its own partition of `delivery_log`, so every
event goes to one webhook. The rate is that of a backlog. Latency is measured at half of that rate,
for both.

Then a webhook is added whose receiver never responds, in a partition that another webhook uses.
First it gets more events at once than its queue holds, so that the live path detects how slow it
is; then it gets as many events as each other webhook. The baseline is the latency without it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from app.domain.concurrency import USEFUL_MIN
from app.log.topics import EVENTS
from benchmarks.bare_live import Task, bare_live
from benchmarks.live_load import EventSource, Latencies, latencies
from benchmarks.running_broker import cpu_s, until
from benchmarks.running_process import RunningProcess
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line, share_at_least, share_at_most
from benchmarks.timing_receiver import TimingReceiver, timing_receiver

BARE_EVENTS: Final = "bare_events"
WEBHOOKS: Final = 16
KINDS: Final = tuple(f"bench.{number}" for number in range(WEBHOOKS))
HANGING: Final = "bench.hanging"
DEADLINE_S: Final = 120.0

BARE_SHARE_MIN: Final = 0.6
P99_SHARE_MAX: Final = 4.0

WARM_UP_EVENTS: Final = 500
"""Events before the measurement, which open connections and warm up the code."""


class Bench(NamedTuple):
    """The service, the live process, the receiver, and the event source."""

    stage: ServiceStage
    live: RunningProcess
    receiver: TimingReceiver
    source: EventSource


class Figures(NamedTuple):
    """One round: rates in events/s, and CPU of the live process per event."""

    rate: float
    cpu_us: float
    bare_rate: float
    latency: Latencies
    bare_latency: Latencies
    hang_starts: Latencies
    hanging: Latencies


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round."""
    with _bench(folder) as bench:
        for topic in (EVENTS, BARE_EVENTS):
            _rate(bench, topic, WARM_UP_EVENTS)
        return _lines([_round(bench, scale) for _ in range(scale.rounds)])


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with service_stage(folder) as stage, timing_receiver() as receiver:
        settings, servers = stage.settings, stage.broker.bootstrap_servers
        stage.broker.create_topic(BARE_EVENTS, settings.partitions)
        webhooks = stage.webhooks_in_separate_partitions(
            [f"{receiver.url}/{kind}" for kind in KINDS]
        )
        for webhook, kind in zip(webhooks, KINDS, strict=True):
            stage.add_rule(webhook, kind)
        in_flight = WEBHOOKS * USEFUL_MIN
        task = Task(servers, BARE_EVENTS, settings.partitions, f"{receiver.url}/bare", in_flight)
        with stage.process("live") as live, bare_live(task):
            yield Bench(stage, live, receiver, EventSource(servers))


def _round(bench: Bench, scale: Scale) -> Figures:
    before_s = cpu_s(bench.live.process)
    rate = _rate(bench, EVENTS, scale.live_events)
    cpu_us = (cpu_s(bench.live.process) - before_s) * 1e6 / scale.live_events
    return Figures(
        rate,
        cpu_us,
        _rate(bench, BARE_EVENTS, scale.live_events),
        _latency(bench, EVENTS, rate / 2, scale.live_s),
        _latency(bench, BARE_EVENTS, rate / 2, scale.live_s),
        *_hanging(bench, rate / 2, scale.live_s),
    )


def _rate(bench: Bench, topic: str, events: int) -> float:
    """Return the events/s of a backlog, from the first arrival to the last."""
    bench.source.publish(topic, KINDS, events)
    _wait_for(bench, events)
    report = bench.receiver.report()
    assert (report.posts, report.event_ids) == (events, events), report
    return report.events_per_s


def _latency(
    bench: Bench, topic: str, rate: float, seconds: float, extra_kinds: Sequence[str] = ()
) -> Latencies:
    """Return the latencies of events for receivers that respond, published at `rate`."""
    kinds = [*KINDS, *extra_kinds]
    whole_rate = rate * len(kinds) / len(KINDS)
    published = bench.source.publish_steadily(topic, kinds, whole_rate, seconds)
    answered = [each for number, each in enumerate(published) if number % len(kinds) < len(KINDS)]
    _wait_for(bench, len(answered))
    return latencies(published, bench.receiver.arrivals(), answered)


def _hanging(bench: Bench, rate: float, seconds: float) -> tuple[Latencies, Latencies]:
    """Return the latencies of others when a receiver starts to hang, and later."""
    stage = bench.stage
    hanging = stage.enabled_webhook(bench.receiver.hanging_url)
    stage.add_rule(hanging, HANGING)
    bench.source.publish(EVENTS, [HANGING], stage.settings.live_queue_max * 2)
    start = _latency(bench, EVENTS, rate, seconds)
    later = _latency(bench, EVENTS, rate, seconds, [HANGING])
    stage.store.delete_webhook(hanging.id)
    return start, later


def _wait_for(bench: Bench, posts: int) -> None:
    until(
        lambda: bench.receiver.count() >= posts,
        f"{posts} events arrive",
        period_s=0.05,
        deadline_s=DEADLINE_S,
    )


def _lines(rounds: list[Figures]) -> list[Line]:
    rate = median(each.rate for each in rounds)
    latency = _median([each.latency for each in rounds])
    bare = _median([each.bare_latency for each in rounds])
    start = _median([each.hang_starts for each in rounds])
    hanging = _median([each.hanging for each in rounds])
    loop = Baseline("bare loop", median(each.bare_rate for each in rounds))
    bare_p99 = loop._replace(figure=bare.p99)
    half = f"at {rate / 2:,.0f} events/s"
    without = Baseline("no receiver hangs", latency.p99)
    longest = Baseline("no receiver hangs", latency.longest)
    return [
        Line("rewind live, backlog", rate, "events/s", loop, share_at_least(BARE_SHARE_MIN)),
        Line("  live CPU per event", median(each.cpu_us for each in rounds), "us"),
        Line(f"latency p50 {half}", latency.p50, "ms", loop._replace(figure=bare.p50)),
        Line(f"latency p99 {half}", latency.p99, "ms", bare_p99, share_at_most(P99_SHARE_MAX)),
        Line("  p99 of others while a receiver hangs", hanging.p99, "ms", without),
        Line("  maximum of others when it starts to hang", start.longest, "ms", longest),
    ]


def _median(rounds: list[Latencies]) -> Latencies:
    """Return the median of each figure."""
    return Latencies(*(median(figures) for figures in zip(*rounds, strict=True)))
