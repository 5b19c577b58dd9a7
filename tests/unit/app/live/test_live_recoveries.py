"""A due recovery becomes a replay, and wakes the workers."""

import asyncio

from app.domain.model import NewWebhook, Window
from app.domain.recovery import RecoveryRecord
from app.domain.retry import RetryPolicy
from app.live.recoveries import Recoveries
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import until_async


def test_workers_are_woken_for_the_replay_of_a_recovery(store: Store) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/a", "", new_secret()))
    store.enable_webhook(webhook.id, webhook.url)
    record = RecoveryRecord(900, Window(1_000, 2_000), failed_probes=2, next_probe_ms=5)
    store.save_recovery(webhook.id, record, origin="here", is_recovered=True)
    woken_for: list[str] = []

    async def scenario() -> None:
        recoveries = Recoveries(store, "here", RetryPolicy(), wake_workers=woken_for.append)
        starting = asyncio.create_task(recoveries.start_replays())
        await until_async(lambda: bool(woken_for), "the workers were woken")
        starting.cancel()

    asyncio.run(scenario())
    assert woken_for == [replay.id for replay in store.replays().items]
