"""Measures how long a short replay waits next to a hundred long ones of another account.

One worker with its default settings has four slots. The long replays outlast the measurement.
Either each sends one event a second, so that they wait most of their time, or each keeps a slot
busy. The baseline is the same short replay on an idle worker.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import insert

from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.options import ReplayOptions
from app.domain.states import TERMINAL, ReplayState
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG
from app.store.engine import Database
from app.store.tables import accounts
from app.webhooks.signing import new_secret
from benchmarks.running_broker import until
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line
from benchmarks.timing_receiver import timing_receiver

LONG_REPLAYS: Final = 100
SHORT_EVENTS: Final = 5
ACCOUNTS: Final = ("long", "short")

PACED_PER_S: Final = 1
PACED_EVENTS: Final = 120
BUSY_PER_S: Final = 200
"""Enough to take a slot, and little enough for this machine."""

BUSY_EVENTS: Final = 3_000
BODY: Final = b"x" * 200
PUBLISHED_AT_ONCE: Final = 10_000
DAY_MS: Final = 86_400_000


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure the short replay alone, and next to each kind of long ones."""
    idle_s = _waits_s(scale, folder, 0, 0)
    paced_s = _waits_s(scale, folder, PACED_EVENTS, PACED_PER_S)
    busy_s = _waits_s(scale, folder, BUSY_EVENTS, BUSY_PER_S)
    baseline = Baseline("idle worker", median(idle_s))
    return [
        Line("5 events on an idle worker", median(idle_s), "s"),
        Line("  next to 100 replays of 1 event/s", median(paced_s), "s", baseline),
        Line("  next to 100 busy replays", median(busy_s), "s", baseline),
        Line("  longest wait next to them", max(*paced_s, *busy_s), "s", baseline),
    ]


def _waits_s(scale: Scale, folder: Path, events: int, per_s: int) -> list[float]:
    """Return the seconds from the request of each short replay to its end."""
    folder = folder / f"turns-{per_s}"
    folder.mkdir()
    with service_stage(folder) as stage, timing_receiver() as receiver:
        _create_accounts(stage)
        short = _webhooks(stage, receiver.blind_url, "short", 1)
        long = _webhooks(stage, receiver.blind_url, "long", LONG_REPLAYS if events else 0)
        now_ms = time.time_ns() // 1_000_000
        window = Window(now_ms - DAY_MS, now_ms)
        asyncio.run(_publish(stage, short, SHORT_EVENTS, now_ms))
        asyncio.run(_publish(stage, long, events, now_ms))
        options = ReplayOptions(max_events_per_second=per_s or 1)
        replays = [stage.create_replay(NewReplay(each.id, window, options)) for each in long]
        with stage.process("worker"):
            if replays:
                _wait_until_full(stage, are_waiting=per_s == PACED_PER_S)
            waits_s = [_wait_of_one(stage, short[0], window) for _ in range(2 * scale.rounds + 1)]
        active = sum(stage.store.replay(each.id).state not in TERMINAL for each in replays)
        assert active == len(replays), f"{active} of {len(replays)} are still active"
        return waits_s


def _create_accounts(stage: ServiceStage) -> None:
    rows = [{"id": name, "name": name, "created_ms": 1} for name in ACCOUNTS]
    with closing(Database(stage.settings.database)) as database:
        database.write(lambda db: db.execute(insert(accounts), rows))


def _webhooks(stage: ServiceStage, url: str, account_id: str, count: int) -> list[Webhook]:
    created = [
        stage.store.create_webhook(NewWebhook(url, "bench", new_secret(), account_id))
        for _ in range(count)
    ]
    return [stage.store.enable_webhook(each.id, url) for each in created]


async def _publish(
    stage: ServiceStage, webhooks: Sequence[Webhook], count: int, now_ms: int
) -> None:
    events = [
        NewEvent(webhook.id, f"{webhook.id}-{number}", "bench", now_ms - DAY_MS + number, BODY)
        for webhook in webhooks
        for number in range(count)
    ]
    servers = stage.settings.bootstrap_servers
    async with EventPublisher(servers, origin="local", server="bench") as publisher:
        for start in range(0, len(events), PUBLISHED_AT_ONCE):
            await publisher.publish(DELIVERY_LOG, events[start : start + PUBLISHED_AT_ONCE])


def _wait_until_full(stage: ServiceStage, *, are_waiting: bool) -> None:
    """Wait until as many replays run as the worker has slots, or their account may have.

    A new replay counts as busy until it has waited most of its first second.
    """
    settings = stage.settings
    count = settings.running_replays_per_account if are_waiting else settings.jobs_per_worker

    def running(stage: ServiceStage) -> int:
        return stage.store.job_statistics().by_state[ReplayState.ONGOING]

    until(
        lambda: running(stage) >= count,
        "all slots are taken",
        period_s=0.05,
    )


def _wait_of_one(stage: ServiceStage, webhook: Webhook, window: Window) -> float:
    start_s = time.monotonic()
    stage.wait_for(stage.create_replay(NewReplay(webhook.id, window)), SHORT_EVENTS)
    return time.monotonic() - start_s
