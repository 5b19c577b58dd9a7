"""Measures what an event costs the live path if each event goes to a different webhook.

The baseline is the same backlog for sixteen webhooks. Each webhook has a rule for an event type of
its own. The cost is the CPU time of `rewind live` until the receiver has the last event.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.log.topics import EVENTS
from benchmarks.live_load import EventSource
from benchmarks.running_broker import cpu_s, until
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line, share_at_most
from benchmarks.timing_receiver import TimingReceiver, timing_receiver

FEW: Final = 16
RATIO_MAX: Final = 1.3
DEADLINE_S: Final = 240.0


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure both cases in each round."""
    kinds = [f"bench.{number}" for number in range(scale.live_events)]
    with service_stage(folder) as stage, timing_receiver() as receiver:
        stage.many_webhooks(receiver.url, kinds)
        rounds = [
            (_cpu_us(stage, receiver, kinds[:FEW]), _cpu_us(stage, receiver, kinds))
            for _ in range(scale.rounds)
        ]
    few, many = (median(each) for each in zip(*rounds, strict=True))
    return [
        Line(f"CPU per event, {FEW} webhooks", few, "us"),
        Line(
            f"CPU per event, {len(kinds):,} webhooks",
            many,
            "us",
            Baseline(f"{FEW} webhooks", few),
            share_at_most(RATIO_MAX),
        ),
    ]


def _cpu_us(stage: ServiceStage, receiver: TimingReceiver, kinds: Sequence[str]) -> float:
    """Return the CPU per event of a new process, after a backlog as long to warm it up.

    A new one, because statistics are stored seconds later: they must not count for the other case.
    """
    with stage.process("live") as live:
        source = EventSource(stage.broker.bootstrap_servers)
        _deliver(source, receiver, kinds)
        before_s = cpu_s(live.process)
        events = _deliver(source, receiver, kinds)
        return (cpu_s(live.process) - before_s) * 1e6 / events


def _deliver(source: EventSource, receiver: TimingReceiver, kinds: Sequence[str]) -> int:
    """Publish a backlog with each of `kinds` in turn, wait for it, and return its length."""
    events = len(kinds) if len(kinds) > FEW else FEW * 1_000
    source.publish(EVENTS, kinds, events)
    until(
        lambda: receiver.count() >= events,
        f"{events} events arrive",
        period_s=0.05,
        deadline_s=DEADLINE_S,
    )
    report = receiver.report()
    assert (report.posts, report.events) == (events, events), report
    return events
