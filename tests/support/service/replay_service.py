"""API and worker of one data centre in this process, with a receiver."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, Self

import httpx
from sqlalchemy import create_engine, text

from app.api.application import create_app
from app.config import Settings
from app.delivery.attempt import AttemptSender
from app.domain.accounts import Scope
from app.domain.model import NewReplay, NewWebhook, Replay, Webhook, Window
from app.domain.states import TERMINAL
from app.domain.windows import format_time
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.reader_clients import ReaderClients
from app.log.replay_requests import ReplayRequestPublisher
from app.log.topics import DELIVERY_OUTCOMES, ensure_topics
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_publisher import OutcomePublisher
from app.replay_workers.work_watch import WorkWatch
from app.replay_workers.worker import ReplayWorker
from app.services.metrics import ApiMetrics
from app.services.services import Services
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.database.api_keys import issue_key
from tests.support.http.api_clients import client_of
from tests.support.http.receiver_thread import is_event
from tests.support.processes.waiting import until_async


class Service:
    """An API and a worker with a database, a log of one partition, and a receiver."""

    def __init__(self, settings: Settings, store: Store, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self.client = client
        self.store = store
        self.now_ms = time.time_ns() // 1_000_000
        self.event_ids: list[str] = []
        self._receiver = WebhookReceiver(on_webhook=self._keep)

    def _keep(self, got: ReceivedWebhook) -> None:
        if is_event(got):
            self.event_ids.append(got.event_id)

    @classmethod
    @asynccontextmanager
    async def running(cls, settings: Settings) -> AsyncIterator[Self]:
        guard = Guard(allow_private=True)
        history = LogHistory(settings.bootstrap_servers)
        publisher = EventPublisher(
            settings.bootstrap_servers,
            origin=settings.origin,
            server="test",
            make_topics=partial(
                ensure_topics,
                settings.bootstrap_servers,
                partitions=settings.partitions,
                retention_ms=settings.retention_ms,
            ),
        )
        stopping = asyncio.Event()
        with closing(Store.open(settings.database)) as store:
            operator = issue_key(store, "platform", Scope.OPERATOR, "")
            async with (
                publisher,
                WebhookSender(guard) as sender,
                client_of(
                    create_app(
                        Services.of(
                            settings, store, publisher, history, guard, sender, ApiMetrics()
                        )
                    ),
                    operator,
                ) as client,
            ):
                outcomes = LogHistory(settings.bootstrap_servers, topic=DELIVERY_OUTCOMES)
                clients = ReaderClients(settings.bootstrap_servers)
                requests = ReplayRequestPublisher(settings.bootstrap_servers, {})
                metrics = WorkerMetrics()
                dependencies = WorkerDependencies(
                    settings,
                    store,
                    WorkWatch(store, settings.origin),
                    history,
                    outcomes,
                    clients,
                    requests,
                    guard,
                    AttemptSender(sender, metrics.deliveries),
                    metrics,
                    OutcomePublisher(publisher, metrics),
                )
                service = cls(settings, store, client)
                await service._receiver.start()
                worker = asyncio.create_task(ReplayWorker(dependencies).run(stopping))
                try:
                    yield service
                finally:
                    stopping.set()
                    await worker
                    requests.close()
                    await service._receiver.stop()

    def webhook(self) -> Webhook:
        webhook = self.store.create_webhook(
            NewWebhook(f"{self._receiver.url}/hook", "test", new_secret())
        )
        webhook = self.store.enable_webhook(webhook.id, webhook.url)
        self._receiver.secret = webhook.secret
        return webhook

    async def post(self, webhook: Webhook, times_ms: dict[str, int]) -> httpx.Response:
        """Publish events in one request. Times are relative to now."""
        events: list[dict[str, Any]] = [
            {
                "id": event_id,
                "type": "test.happened",
                "time": format_time(self.now_ms + time_ms),
                "webhookId": webhook.id,
                "data": {},
            }
            for event_id, time_ms in times_ms.items()
        ]
        return await self.client.post("/events", json=events)

    async def publish(self, webhook: Webhook, **times_ms: int) -> None:
        assert (await self.post(webhook, times_ms)).status_code == 202

    async def replay(self, webhook: Webhook, from_ms: int, to_ms: int) -> Replay:
        """Create a replay of a window relative to now, and return it once it is finished."""
        window = Window(self.now_ms + from_ms, self.now_ms + to_ms)
        replay, _ = self.store.create_replay(NewReplay(webhook.id, window))
        return await self.finished(replay.id)

    async def finished(self, replay_id: str) -> Replay:
        """Wait for the end of a replay and return it."""
        await until_async(lambda: self.store.replay(replay_id).state in TERMINAL, "it was finished")
        return self.store.replay(replay_id)

    def lose_notes(self) -> None:
        """Let the database reject positions of late events from now on."""
        engine = create_engine(self._settings.database)
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE late_arrivals"))
        engine.dispose()
