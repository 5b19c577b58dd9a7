"""Events of a webhook with strict order wait while a recovery replay sends earlier ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.delivery.queue import DeliveryQueue
from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions, Ordering
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.options import Only, ReplayOptions, ReplayReason
from app.domain.partition_progress import PartitionProgress
from app.domain.recovery import OutageRecord
from app.domain.retry import RetryPolicy
from app.live.delivery import DeliveryPartition, LiveDelivery
from app.live.recoveries import Recoveries
from app.live.webhook_order import WebhookOrder
from app.log.event import LoggedEvent
from app.log.group_position import Committed
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import until_async

STRICT = EndpointOptions(ordering=Ordering.STRICT)
RECORD = OutageRecord(900, Window(1_000, 2_000), failed_probes=2, next_probe_ms=5)


def ordered_webhook(store: Store) -> Webhook:
    new = NewWebhook("https://example.com/a", "", new_secret(), options=STRICT)
    made = store.create_webhook(new)
    return store.enable_webhook(made.id, made.url)


class OrderScene:
    """The order of one webhook, with a receiver that accepts everything."""

    def __init__(self, store: Store, webhook: Webhook, group: asyncio.TaskGroup) -> None:
        self.store = store
        self.webhook: Webhook | None = webhook
        self.sent: list[int] = []
        self.skipped: list[int] = []
        self.failing: list[OutageRecord] = []
        self.recoveries = Recoveries(store, "here", RetryPolicy())
        self.queue = DeliveryQueue[LiveDelivery](self._send, 1, group.create_task)
        self._partition = DeliveryPartition(0, PartitionProgress(0), Committed(-1, ""))
        self.order = WebhookOrder(
            webhook.id,
            self.queue,
            self.recoveries,
            lambda: self.webhook,
            self._skip,
            self.failing.append,
        )

    def add(self, *offsets: int) -> None:
        """Add events to the queue, as the queue of a webhook does."""
        for offset in offsets:
            event = LoggedEvent(offset, 1_000 + offset, b"wh", f"evt_{offset}", "a.b", b"{}")
            delivery = LiveDelivery(self._partition, "wh", f"evt_{offset}", offset, event, 0.0, 2)
            waits = self.order.begin_if_unknown(self.webhook)
            self.queue.add(delivery, is_ready=not waits)
            if waits:
                delivery.park()

    async def _send(self, delivery: LiveDelivery) -> None:
        self.sent.append(delivery.event.offset)
        self.queue.remove(delivery)

    def _skip(self, delivery: LiveDelivery) -> None:
        self.skipped.append(delivery.event.offset)
        self.queue.remove(delivery)

    async def check(self) -> None:
        """Return when the database was asked once more."""
        asked = asyncio.Event()

        def check(**_: object) -> None:
            asked.set()

        self.recoveries.watch("another", check)
        await asked.wait()
        self.recoveries.unwatch("another")


@asynccontextmanager
async def order_scene(store: Store, webhook: Webhook) -> AsyncIterator[OrderScene]:
    async with asyncio.TaskGroup() as group:
        scene = OrderScene(store, webhook, group)
        storing = group.create_task(scene.recoveries.run())
        yield scene
        storing.cancel()


def run(
    store: Store, webhook: Webhook, scenario: Callable[[OrderScene], Coroutine[Any, Any, None]]
) -> None:
    async def run_scenario() -> None:
        async with order_scene(store, webhook) as scene:
            await scenario(scene)

    asyncio.run(run_scenario())


def test_events_wait_until_the_database_was_asked_once(store: Store) -> None:
    async def scenario(scene: OrderScene) -> None:
        scene.add(1, 2)
        assert scene.sent == []
        await until_async(lambda: scene.sent == [1, 2], "the events are sent")
        scene.add(3)
        assert not scene.order.is_waiting
        # Enabled again, which may have made a recovery due.
        assert scene.webhook is not None
        scene.webhook = store.enable_webhook(scene.webhook.id, scene.webhook.url)
        scene.add(4)
        assert scene.order.is_waiting
        await until_async(lambda: scene.sent == [1, 2, 3, 4], "the events are sent")
        assert scene.order.is_forgettable

    run(store, ordered_webhook(store), scenario)


def test_events_wait_for_a_recovery_until_its_replay_has_ended(store: Store) -> None:
    webhook = ordered_webhook(store)
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)

    async def scenario(scene: OrderScene) -> None:
        scene.add(3, 1, 2)
        await scene.check()
        replay = store.start_recovery(webhook.id, origin="here")
        assert replay is not None
        await scene.check()
        scene.add(4)
        assert (scene.sent, scene.order.is_waiting) == ([], True)
        store.cancel_replay(replay.id)
        await until_async(lambda: scene.sent == [1, 2, 3, 4], "the events, in the log's order")

    run(store, webhook, scenario)


def test_too_many_events_are_skipped_once_a_recovery_of_them_is_stored(store: Store) -> None:
    webhook = ordered_webhook(store)
    active, _ = store.create_replay(recovery_of(webhook))

    async def scenario(scene: OrderScene) -> None:
        scene.add(1, 2, 3)
        scene.order.leave_to_replay()
        # Added while it is being stored, so it may be outside the range of its replay.
        scene.add(4)
        assert (scene.skipped, scene.order.is_storing) == ([], True)
        await until_async(lambda: sorted(scene.skipped) == [1, 2, 3], "skipped events")
        assert webhook.id in store.find_unfinished(origin="here")
        store.cancel_replay(active.id)
        await scene.check()
        assert scene.sent == []
        replay = store.start_recovery(webhook.id, origin="here")
        assert replay is not None
        assert replay.window.from_ms <= 1_001
        store.cancel_replay(replay.id)
        await until_async(lambda: scene.sent == [4], "the other event")

    run(store, webhook, scenario)


def test_an_outage_that_no_process_continues_is_found(store: Store) -> None:
    webhook = ordered_webhook(store)
    store.save_recovery(webhook.id, RECORD, origin="here")

    async def scenario(scene: OrderScene) -> None:
        scene.add(1)
        await until_async(lambda: scene.failing == [RECORD], "the outage")
        assert not scene.order.is_waiting
        assert scene.sent == []

    run(store, webhook, scenario)


@pytest.mark.parametrize("status", ["without order", "not enabled"])
def test_events_of_a_webhook_without_order_or_not_enabled_do_not_wait(
    store: Store, status: str
) -> None:
    webhook = ordered_webhook(store)
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)

    async def scenario(scene: OrderScene) -> None:
        scene.add(1, 2)
        await scene.check()
        assert scene.sent == []
        scene.webhook = None if status == "not enabled" else replace(webhook, options=NO_OPTIONS)
        await until_async(lambda: scene.sent == [1, 2], "the events leave the queue")

    run(store, webhook, scenario)


def test_a_partition_of_another_process_is_looked_up_again(store: Store) -> None:
    async def scenario(scene: OrderScene) -> None:
        scene.add(1)
        await until_async(lambda: scene.sent == [1], "the event is sent")
        scene.order.remove_partition()
        scene.add(2)
        assert scene.order.is_waiting

    run(store, ordered_webhook(store), scenario)


def recovery_of(webhook: Webhook) -> NewReplay:
    """A recovery that is to be created as active."""
    options = ReplayOptions(only=Only.FAILED)
    return NewReplay(webhook.id, Window(1, 2), options, origin="here", reason=ReplayReason.RECOVERY)
