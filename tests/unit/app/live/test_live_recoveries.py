"""Recoveries are stored, and due ones become replays that wake the workers."""

import asyncio
from functools import partial

from app.domain.model import NewWebhook, Window
from app.domain.recovery import Outage, OutageRecord
from app.domain.retry import RetryPolicy
from app.live.recoveries import Recoveries
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import until_async


def test_workers_are_woken_for_the_replay_of_a_recovery(store: Store) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/a", "", new_secret()))
    store.enable_webhook(webhook.id, webhook.url)
    record = OutageRecord(900, Window(1_000, 2_000), failed_probes=2, next_probe_ms=5)
    store.save_recovery(webhook.id, record, origin="here", is_recovered=True)
    woken_for: list[str] = []

    async def scenario() -> None:
        recoveries = Recoveries(store, "here", RetryPolicy(), wake_workers=woken_for.append)
        starting = asyncio.create_task(recoveries.start_replays())
        await until_async(lambda: bool(woken_for), "the workers were woken")
        starting.cancel()

    asyncio.run(scenario())
    assert woken_for == [replay.id for replay in store.replays().items]


def test_outages_that_end_before_they_are_stored_are_all_recovered(store: Store) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/a", "", new_secret()))
    policy = RetryPolicy()
    stored: list[int] = []

    async def scenario() -> None:
        recoveries = Recoveries(store, "here", policy)
        for since_ms, has_missed in ((1_000, True), (5_000, True), (9_000, False)):
            recovery = Outage.begin(policy, since_ms, since_ms)
            recoveries.save(webhook.id, recovery, lambda: None)
            recovery.has_missed = has_missed
            recoveries.finish(webhook.id, recovery, partial(stored.append, since_ms))
        storing = asyncio.create_task(recoveries.run())
        await until_async(lambda: len(stored) == 3, "all are stored")
        storing.cancel()

    asyncio.run(scenario())
    store.enable_webhook(webhook.id, webhook.url)
    replay = store.start_recovery(webhook.id, origin="here")
    assert replay is not None
    assert replay.window.from_ms == 1_000


def test_an_outage_that_continues_keeps_the_window_of_the_one_before(store: Store) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/a", "", new_secret()))
    policy = RetryPolicy()
    first, second = (Outage.begin(policy, since_ms, since_ms) for since_ms in (1_000, 5_000))
    first.has_missed = True
    stored = asyncio.Event()

    async def scenario() -> None:
        recoveries = Recoveries(store, "here", policy)
        recoveries.finish(webhook.id, first, lambda: None)
        recoveries.save(webhook.id, second, stored.set)
        storing = asyncio.create_task(recoveries.run())
        await until_async(stored.is_set, "both are stored")
        storing.cancel()

    asyncio.run(scenario())
    record = store.recoveries(origin="here")[webhook.id]
    assert (record.since_ms, record.window) == (1_000, Window(1_000, 5_000))
