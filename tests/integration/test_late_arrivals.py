"""Events that POST /events takes long after their time, and the replays that must find them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from api_clients import client_of
from receiver_thread import is_event
from sqlalchemy import create_engine, text

from app.api.application import create_app
from app.config import Settings
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES, ensure_topics
from app.replay.accounts import Scope
from app.replay.model import Counts, NewReplay, NewWebhook, OffsetRange, Replay, Webhook, Window
from app.replay.states import TERMINAL, ReplayState
from app.replay.windows import MINUTE_MS, format_time
from app.replay_workers.delivery import Equipment
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.worker import ReplayWorker
from app.store import Store, migrate
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from logbroker.embedded import EmbeddedBroker

HOUR_MS = 60 * MINUTE_MS
DEADLINE_S = 30.0


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.02)


class Service:
    """API and worker on one database and a log of one partition, and a receiver."""

    def __init__(self, settings: Settings, store: Store, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self._client = client
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
            origin="here",
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
            operator = store.create_key("platform", Scope.OPERATOR, "")
            async with (
                publisher,
                WebhookSender(guard) as sender,
                client_of(
                    create_app(settings, store, publisher, history, guard, sender), operator
                ) as client,
            ):
                outcomes = LogHistory(settings.bootstrap_servers, topic=DELIVERY_OUTCOMES)
                equipment = Equipment(
                    settings, store, history, outcomes, guard, sender, WorkerMetrics()
                )
                service = cls(settings, store, client)
                await service._receiver.start()
                worker = asyncio.create_task(ReplayWorker(equipment).run(stopping))
                try:
                    yield service
                finally:
                    stopping.set()
                    await worker
                    await service._receiver.stop()

    def webhook(self) -> Webhook:
        webhook = self.store.create_webhook(
            NewWebhook(f"{self._receiver.url}/hook", "test", new_secret())
        )
        webhook = self.store.enable_webhook(webhook.id, webhook.url)
        self._receiver.secret = webhook.secret
        return webhook

    async def post(self, webhook: Webhook, times_ms: dict[str, int]) -> httpx.Response:
        """One request of events, by id; times are relative to the present."""
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
        return await self._client.post("/events", json=events)

    async def publish(self, webhook: Webhook, **times_ms: int) -> None:
        assert (await self.post(webhook, times_ms)).status_code == 202

    async def replay(self, webhook: Webhook, from_ms: int, to_ms: int) -> Replay:
        """A replay that is over, of a window relative to the present."""
        window = Window(self.now_ms + from_ms, self.now_ms + to_ms)
        replay, _ = self.store.create_replay(NewReplay(webhook.id, window))
        await until(lambda: self.store.replay(replay.id).state in TERMINAL, "it was finished")
        return self.store.replay(replay.id)

    def lose_notes(self) -> None:
        """Make the database refuse every note from now on."""
        engine = create_engine(self._settings.database)
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE late_arrivals"))
        engine.dispose()


@pytest.fixture
def settings(tmp_path: Path, broker: EmbeddedBroker, database_url: str) -> Settings:
    migrate(database_url)
    return Settings(
        data_dir=tmp_path,
        database=database_url,
        bootstrap_servers=broker.bootstrap_servers,
        partitions=1,
        allow_private_targets=True,
        poll_interval_s=0.02,
    )


def test_a_replay_finds_an_old_event_that_came_after_newer_ones(settings: Settings) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            other, webhook = service.webhook(), service.webhook()
            await service.publish(webhook, new_1=-2_000, new_2=-1_000)
            await service.publish(other, other=-2 * HOUR_MS)
            await service.publish(webhook, late=-2 * HOUR_MS)
            await service.publish(webhook, new_3=-500)

            done = await service.replay(webhook, -2 * HOUR_MS - MINUTE_MS, -2 * HOUR_MS + 1)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
            assert done.offsets == OffsetRange(0, 0, 4)
            assert service.event_ids == ["late"]

    asyncio.run(scenario())


def test_a_window_without_late_events_reads_no_more_for_those_of_others(
    settings: Settings,
) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            await service.publish(webhook, old=-4 * HOUR_MS)
            await service.publish(webhook, new=-1_000)
            await service.publish(webhook, late=-2 * HOUR_MS)

            done = await service.replay(webhook, -4 * HOUR_MS, -3 * HOUR_MS)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
            assert done.offsets == OffsetRange(0, 0, 1)
            done = await service.replay(webhook, -2 * HOUR_MS + 1, -HOUR_MS)
            assert (done.offsets, done.counts) == (OffsetRange(0, 1, 1), Counts())
            assert service.event_ids == ["old"]

    asyncio.run(scenario())


def test_an_event_a_little_late_is_found_behind_one_from_ahead(settings: Settings) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            await service.publish(webhook, ahead=4 * MINUTE_MS)
            await service.publish(webhook, behind=-9 * MINUTE_MS)

            done = await service.replay(webhook, -10 * MINUTE_MS, -8 * MINUTE_MS)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
            assert service.event_ids == ["behind"]

    asyncio.run(scenario())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_late_events_are_not_accepted_unless_they_are_noted(settings: Settings) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            service.lose_notes()
            assert (await service.post(webhook, {"on_time": -1_000})).status_code == 202
            refused = await service.post(webhook, {"new": -1_000, "late": -HOUR_MS})
            assert refused.status_code == 503
            assert refused.json()["unavailable"] == ["database"]

    asyncio.run(scenario())
