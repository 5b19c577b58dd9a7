"""Measures replays to receivers that answer after 0, 20 and 200 ms.

The worker adapts the number of its requests in flight, up to its default. The baseline is the
sender alone with a hundred requests in flight, all of the time. A replay is measured from its
request, so that the time until enough requests are in flight counts.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from app.domain.model import NewReplay
from app.domain.options import EVENTS_PER_SECOND_MAX, ReplayOptions
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from benchmarks.delivery_history import BODY_BYTES, History
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line, share_at_least
from benchmarks.timing_receiver import DELAYS_MS, TimingReceiver, timing_receiver
from benchmarks.webhook_sender import repeat, signed_post

IN_FLIGHT: Final = 100
"""What other webhook systems have by default."""

EVENT: Final = b"x" * BODY_BYTES
WAITS_FROM_MS: Final = 200
"""From this latency on, waiting decides and not processor time, of which a replay takes more."""


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure each latency in each round."""
    spawn = multiprocessing.get_context("spawn")
    with (
        service_stage(folder) as stage,
        timing_receiver() as receiver,
        ProcessPoolExecutor(1, spawn) as client,
        stage.process("worker"),
    ):
        urls = receiver.delayed_urls
        webhooks = stage.webhooks_in_separate_partitions([urls[delay] for delay in DELAYS_MS])
        events, partitions = scale.single_events, stage.settings.partitions
        histories = {
            delay: History.until_now(webhook.id, partitions, events, events, 1)
            for delay, webhook in zip(DELAYS_MS, webhooks, strict=True)
        }
        for history in histories.values():
            stage.load(history)
        adaptive: dict[int, list[float]] = {delay: [] for delay in DELAYS_MS}
        fixed: dict[int, list[float]] = {delay: [] for delay in DELAYS_MS}
        for _ in range(scale.rounds):
            for delay, history in histories.items():
                adaptive[delay].append(_replay(stage, receiver, history))
                fixed[delay].append(client.submit(send, urls[delay], scale.client_s).result())
                receiver.report()
        return _lines(adaptive, fixed)


def _replay(stage: ServiceStage, receiver: TimingReceiver, history: History) -> float:
    """Replay a history; return the events/s from the request to the last arrival."""
    events = history.events
    options = ReplayOptions(max_events_per_second=EVENTS_PER_SECOND_MAX)
    start_s = time.monotonic()
    replay = stage.create_replay(NewReplay(history.webhook_id, history.window_of(events), options))
    stage.wait_for(replay, events)
    report = receiver.report()
    assert (report.events, report.event_ids) == (events, events), report
    return events / (report.last_s - start_s)


def send(url: str, seconds: float) -> float:
    """POST one event repeatedly, a hundred at a time; return the POSTs/s."""
    start = time.perf_counter()
    count = asyncio.run(_send(url, seconds))
    return count / (time.perf_counter() - start)


async def _send(url: str, seconds: float) -> int:
    limits = SenderLimits(connections_per_target=IN_FLIGHT)
    async with WebhookSender(Guard(allow_private=True), limits) as sender:
        return await repeat(signed_post(sender, url, EVENT), IN_FLIGHT, seconds)


def _lines(adaptive: Mapping[int, list[float]], fixed: Mapping[int, list[float]]) -> list[Line]:
    return [
        Line(
            f"receiver of {delay} ms",
            median(adaptive[delay]),
            "events/s",
            Baseline("sender, 100 in flight", median(fixed[delay])),
            share_at_least(1.0) if delay >= WAITS_FROM_MS else None,
        )
        for delay in DELAYS_MS
    ]
