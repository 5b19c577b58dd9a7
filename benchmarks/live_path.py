"""The live path from `events` to receivers: its rate, its latency, and who waits for whom.

One `rewind live` with its defaults, beside a bare loop that consumes and POSTs. Sixteen webhooks
want a type each, so every event goes to one of them; each has a partition of `delivery_log` to
itself. The rate is that of events which were all there at once. Latency is measured at half that
rate, the bare loop's at the same one.

Then one more webhook comes, whose receiver never answers, so that its events share a partition
with another webhook's. First it is owed more than may wait for it, all at once, which is when the
live path learns how slow it is; then as many events as each of the others.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from app.domain.model import Webhook
from app.domain.rules import DEFAULT_RULE, Rule
from app.log.topics import EVENTS
from benchmarks.bare_live import Task, bare_live
from benchmarks.live_load import EventSource, Latencies, latencies
from benchmarks.running_broker import cpu_s, until
from benchmarks.running_process import RunningProcess
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line
from benchmarks.timing_receiver import TimingReceiver, timing_receiver

BARE_EVENTS: Final = "bare_events"
WEBHOOKS: Final = 16
KINDS: Final = tuple(f"bench.{number}" for number in range(WEBHOOKS))
HANGING: Final = "bench.hanging"
DEADLINE_S: Final = 120.0

WARM_UP_EVENTS: Final = 500
"""Connections are made, and code is met for the first time."""


class Bench(NamedTuple):
    """All that is measured stands here."""

    stage: ServiceStage
    live: RunningProcess
    receiver: TimingReceiver
    source: EventSource


class Figures(NamedTuple):
    """One round: rates in events/s, and CPU of the live process for an event."""

    rate: float
    cpu_us: float
    bare_rate: float
    latency: Latencies
    bare_latency: Latencies
    beginning_to_hang: Latencies
    beside_hanging: Latencies


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Every case in each round."""
    with _bench(folder) as bench:
        for topic in (EVENTS, BARE_EVENTS):
            _rate(bench, topic, WARM_UP_EVENTS)
        return _lines([_round(bench, scale) for _ in range(scale.rounds)])


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with service_stage(folder) as stage, timing_receiver() as receiver:
        settings, servers = stage.settings, stage.broker.bootstrap_servers
        stage.broker.create_topic(BARE_EVENTS, settings.partitions)
        webhooks = stage.webhooks_apart([f"{receiver.url}/{kind}" for kind in KINDS])
        for webhook, kind in zip(webhooks, KINDS, strict=True):
            _add_rule(stage, webhook, kind)
        in_flight = WEBHOOKS * settings.live_in_flight
        task = Task(servers, BARE_EVENTS, settings.partitions, f"{receiver.url}/bare", in_flight)
        with stage.process("live") as live, bare_live(task):
            yield Bench(stage, live, receiver, EventSource(servers))


def _add_rule(stage: ServiceStage, webhook: Webhook, kind: str) -> None:
    stage.store.put_rule(Rule(webhook.id, DEFAULT_RULE, (kind,)))


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
        *_beside_hanging(bench, rate / 2, scale.live_s),
    )


def _rate(bench: Bench, topic: str, events: int) -> float:
    """Events/s from the first arrival to the last, of events that were all there at once."""
    bench.source.publish(topic, KINDS, events)
    _wait_for(bench, events)
    report = bench.receiver.report()
    assert (report.posts, report.event_ids) == (events, events), report
    return report.events_per_s


def _latency(
    bench: Bench, topic: str, rate: float, seconds: float, beside: Sequence[str] = ()
) -> Latencies:
    """Of the events for receivers that answer, which come at `rate`."""
    kinds = [*KINDS, *beside]
    whole_rate = rate * len(kinds) / len(KINDS)
    published = bench.source.publish_steadily(topic, kinds, whole_rate, seconds)
    answered = [each for number, each in enumerate(published) if number % len(kinds) < len(KINDS)]
    _wait_for(bench, len(answered))
    return latencies(published, bench.receiver.arrivals(), answered)


def _beside_hanging(bench: Bench, rate: float, seconds: float) -> tuple[Latencies, Latencies]:
    """When a receiver begins to hang, and later on."""
    stage = bench.stage
    hanging = stage.enabled_webhook(bench.receiver.hanging_url)
    _add_rule(stage, hanging, HANGING)
    bench.source.publish(EVENTS, [HANGING], stage.settings.live_queue_max * 2)
    beginning = _latency(bench, EVENTS, rate, seconds)
    later = _latency(bench, EVENTS, rate, seconds, [HANGING])
    stage.store.delete_webhook(hanging.id)
    return beginning, later


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
    beginning = _median([each.beginning_to_hang for each in rounds])
    hanging = _median([each.beside_hanging for each in rounds])
    loop = Baseline("bare loop", median(each.bare_rate for each in rounds))
    half = f"at {rate / 2:,.0f} events/s"
    without = Baseline("none hangs", latency.p99)
    longest = Baseline("none hangs", latency.longest)
    return [
        Line("rewind live, events there at once", rate, "events/s", loop),
        Line("  live CPU an event", median(each.cpu_us for each in rounds), "us"),
        Line(f"latency p50 {half}", latency.p50, "ms", loop._replace(figure=bare.p50)),
        Line(f"latency p99 {half}", latency.p99, "ms", loop._replace(figure=bare.p99)),
        Line("  p99 of others beside one that hangs", hanging.p99, "ms", without),
        Line("  longest of others when it begins", beginning.longest, "ms", longest),
    ]


def _median(rounds: list[Latencies]) -> Latencies:
    """Of each figure on its own."""
    return Latencies(*(median(figures) for figures in zip(*rounds, strict=True)))
