"""The resender while the log is unavailable."""

import asyncio
from contextlib import closing

from sqlalchemy import select

from app.config import Settings
from app.delivery.attempt import AttemptSender
from app.domain.deliveries import DeliveryPlace
from app.domain.model import NewWebhook
from app.domain.resends import NewResend
from app.log.deliveries import DeliveryReader
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_publisher import OutcomePublisher
from app.replay_workers.resender import Resender
from app.replay_workers.work_watch import WorkWatch
from app.store.resend_tables import resends
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.database.migrated import ReusedStore
from tests.support.processes.waiting import until_async


def test_claims_without_an_attempt_do_not_count(
    reused_store: ReusedStore, refused_address: str
) -> None:
    settings = Settings(bootstrap_servers=refused_address, origin="here", poll_interval_s=3_600)
    history = LogHistory(refused_address)
    outcomes = LogHistory(refused_address, topic=DELIVERY_OUTCOMES)
    claims = select(resends.c.worker, resends.c.claims, resends.c.status)

    def is_released() -> bool:
        found = store.database.read(lambda db: db.execute(claims).one())
        return tuple(found) == ("worker-1", 0, "pending")

    async def scenario() -> None:
        stopping, metrics = asyncio.Event(), WorkerMetrics()
        publisher = EventPublisher.of(settings, topics_timeout_s=1, close_timeout_s=1)
        async with WebhookSender(Guard(allow_private=True)) as sender, asyncio.TaskGroup() as group:
            resender = Resender(
                store,
                WorkWatch(store, "here"),
                reader,
                AttemptSender(sender, metrics.deliveries),
                OutcomePublisher(publisher, metrics),
                settings,
                "worker-1",
            )
            group.create_task(resender.run(stopping))
            await until_async(is_released, "the claim was released")
            stopping.set()

    with (
        reused_store.one() as store,
        closing(DeliveryReader(settings, history, outcomes)) as reader,
    ):
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        store.enable_webhook(webhook.id, webhook.url)
        store.create_resends(webhook.id, [NewResend(DeliveryPlace("here", 0, 7), "evt_7")])
        asyncio.run(scenario())
