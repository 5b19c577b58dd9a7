"""A worker with everything it works with: librdkafka's own broker, SQLite, and a receiver."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from app.config import Settings
from app.delivery.attempt import AttemptSender
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import (
    Claim,
    Lease,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    Webhook,
    Window,
)
from app.domain.options import ReplayOptions
from app.domain.states import TERMINAL
from app.log.event import NewEvent
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.reader_clients import IDLE_MAX, ReaderClients
from app.log.replay_requests import ReplayRequestPublisher
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES
from app.mail.mailer import Mailer
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_publisher import OutcomePublisher
from app.replay_workers.server import sender_limits
from app.replay_workers.work_watch import WorkWatch
from app.replay_workers.worker import ReplayWorker
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from logbroker.client.partitioner import partition_for_key
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until_async

PARTITIONS = 4
"""What librdkafka's broker gives a topic that it creates."""

BEGIN_MS = 1_763_712_000_000


class JudgingReceiver(WebhookReceiver):
    """A receiver whose answer may depend on what it gets."""

    judge: Callable[[bytes], int] | None = None
    """The status that a body is answered with."""
    words = b""
    """The body of every answer."""

    def _handle(self, request: Any) -> Any:
        if self.judge is not None:
            self.answer(self.judge(request.body))
        return super()._handle(request)._replace(body=self.words)


@dataclass
class Bench:
    """The parts of one test."""

    bootstrap_servers: str
    store: Store
    settings: Settings
    received: list[ReceivedWebhook] = field(default_factory=list)
    """Events alone: the ends of replays are in `notices`."""
    notices: list[ReceivedWebhook] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receiver = JudgingReceiver(port=free_port(), on_webhook=self._record_webhook)
        self.book_servers = self.bootstrap_servers
        """Where the workers tell what replays brought."""
        self.metrics = WorkerMetrics()
        self.on_webhook: Callable[[ReceivedWebhook], None] = lambda _: None

    @property
    def event_ids(self) -> list[str]:
        return [webhook.event_id for webhook in self.received]

    @property
    def taken(self) -> list[str]:
        """The ids of the events the receiver accepted."""
        return [webhook.event_id for webhook in self.received if webhook.status < 300]

    def change(self, **settings: object) -> None:
        self.settings = self.settings.model_copy(update=settings)

    def _record_webhook(self, webhook: ReceivedWebhook) -> None:
        if webhook.event_id.startswith("rpl_"):
            self.notices.append(webhook)
            return
        self.received.append(webhook)
        self.on_webhook(webhook)

    async def webhook(self) -> Webhook:
        """A webhook of the receiver, which starts."""
        await self.receiver.start()
        webhook = self.store_webhook(f"{self.receiver.url}/hook")
        self.receiver.secret = webhook.secret
        return webhook

    def store_webhook(self, url: str, account_id: str = DEFAULT_ACCOUNT) -> Webhook:
        """An ENABLED webhook, as after a proof."""
        webhook = self.store.create_webhook(NewWebhook(url, "test", new_secret(), account_id))
        return self.store.enable_webhook(webhook.id, url)

    async def publish(
        self, events: Sequence[NewEvent], topic: str = DELIVERY_LOG, origin: str = "here"
    ) -> None:
        async with EventPublisher(
            self.bootstrap_servers, origin=origin, server="test"
        ) as publisher:
            await publisher.publish(topic, events)

    def partition_of(self, webhook: Webhook) -> int:
        return partition_for_key(webhook.id.encode(), PARTITIONS)

    def events(self, key: str, start: int, end: int) -> list[NewEvent]:
        return [
            NewEvent(key, f"evt_{n}", "test.happened", BEGIN_MS + n, b'{"n": %d}' % n)
            for n in range(start, end)
        ]

    def replay(
        self,
        webhook: Webhook,
        window: Window | None = None,
        *,
        checkpoint: int | None = None,
        **options: Any,
    ) -> Replay:
        """An OPEN replay whose offsets an earlier worker has resolved: the whole partition."""
        window = window or Window(BEGIN_MS, BEGIN_MS + 1_000_000)
        replay = self.new_replay(webhook, window, **options)
        claim, others = self._claim(replay)
        assert self.store.begin_delivery(claim.lease, self._whole_partition(webhook))
        if checkpoint is not None:
            assert self.store.checkpoint(claim.lease, checkpoint, claim.replay.counts, ())
        for lease in (claim.lease, *others):
            assert self.store.release(lease)
        return self.store.replay(replay.id)

    def _claim(self, replay: Replay) -> tuple[Claim, list[Lease]]:
        """A claim of one replay, and the leases of those that came first."""
        others: list[Lease] = []
        while claim := self.store.claim("an earlier worker", 30.0):
            if claim.replay.id == replay.id:
                return claim, others
            others.append(claim.lease)
        raise AssertionError(f"{replay.id} cannot be claimed")

    def new_replay(self, webhook: Webhook, window: Window, **options: Any) -> Replay:
        """An OPEN replay that no worker has seen, as fast as it can be unless `options` say."""
        asked = ReplayOptions(**{"max_events_per_second": 1_000_000} | options)
        return self.store.create_replay(NewReplay(webhook.id, window, asked))[0]

    def _whole_partition(self, webhook: Webhook) -> OffsetRange:
        partition = self.partition_of(webhook)
        with closing(
            Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "test"})
        ) as consumer:
            place = TopicPartition(DELIVERY_LOG, partition)
            low, high = consumer.get_watermark_offsets(place, DEADLINE_S)
        return OffsetRange(partition, low, high)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[asyncio.Event]:
        """A worker at work; setting what this gives stops it, and so does leaving."""
        stopping = asyncio.Event()
        guard = Guard.of(self.settings)
        publisher = EventPublisher(
            self.book_servers, origin="here", server="test", close_timeout_s=0.1
        )
        clients = ReaderClients(self.settings.bootstrap_servers, idle_max=IDLE_MAX)
        requests = ReplayRequestPublisher(self.book_servers, {})
        async with publisher, WebhookSender(guard, sender_limits(self.settings)) as sender:
            dependencies = WorkerDependencies(
                self.settings,
                self.store,
                WorkWatch(self.store, self.settings.origin),
                LogHistory(self.bootstrap_servers, timeout_s=1.0),
                LogHistory(self.bootstrap_servers, timeout_s=1.0, topic=DELIVERY_OUTCOMES),
                clients,
                requests,
                guard,
                AttemptSender(sender, self.metrics.deliveries),
                self.metrics,
                OutcomePublisher(publisher, self.metrics),
                Mailer.of(self.settings),
            )
            task = asyncio.create_task(ReplayWorker(dependencies).run(stopping))
            try:
                yield stopping
            finally:
                stopping.set()
                await task
                clients.close()
                requests.close()
                await self.receiver.stop()

    async def finished(self, replay: Replay) -> Replay:
        """The replay once it is over."""
        await until_async(
            lambda: self.store.replay(replay.id).state in TERMINAL, "the replay came to an end"
        )
        return self.store.replay(replay.id)
