"""Webhooks share the memory of a live process."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from app.delivery.attempt import AttemptSender
from app.domain.delivery import LiveOutcome, Rejected, Unreachable
from app.domain.endpoint_options import EndpointOptions
from app.domain.model import Validation
from app.domain.partition_progress import PartitionProgress
from app.domain.retry import FixedDelays, RetryPolicy
from app.domain.scheduled_retries import RetrySchedule
from app.live import queue_context
from app.live.delivery import DeliveryPartition, LiveDelivery
from app.live.handovers import Handovers
from app.live.metrics import LiveMetrics
from app.live.queue_context import QueueContext
from app.live.recoveries import Recoveries
from app.live.routing import RoutingTable
from app.live.scheduled_retries import ScheduledRetries
from app.live.webhook_queue import WebhookQueue
from app.live.webhook_status import WebhookStatusWriter
from app.log.event import LoggedEvent
from app.log.group_position import Committed
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from tests.support.database.secret_keys import open_store
from tests.unit.app.webhooks.stored_webhook import webhook_at

LATER_S = 3_600.0
"""The delay of the first attempt: no delivery leaves its queue during a test."""


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that is not connected."""
    with closing(open_store(f"sqlite:///{tmp_path_factory.mktemp('store')}/unused.db")) as store:
        yield store


class PauseRecorder:
    """Records which webhooks pause their partition, and which events are skipped."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self.skipped: list[str] = []

    def record_outcome(
        self, delivery: LiveDelivery, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        assert (outcome, status) == (LiveOutcome.SKIPPED, None), reason
        self.skipped.append(delivery.webhook_id)

    def record_failed_attempt(
        self, delivery: LiveDelivery, failure: Rejected | Unreachable, next_ms: int | None
    ) -> None:
        raise AssertionError(failure.reason)

    def pause_partition(self, partition: DeliveryPartition, webhook_id: str) -> None:
        self.paused.add(webhook_id)

    def resume_partition(self, partition: DeliveryPartition, webhook_id: str) -> None:
        self.paused.remove(webhook_id)


async def context_of(
    store: Store, recorder: PauseRecorder, group: asyncio.TaskGroup
) -> QueueContext:
    table, metrics = RoutingTable(store), LiveMetrics()
    return QueueContext(
        table=table,
        attempts=AttemptSender(WebhookSender(Guard()), metrics.attempts),
        status_writer=WebhookStatusWriter(store, table, metrics),
        metrics=metrics,
        recorder=recorder,
        handovers=Handovers(store, "here"),
        recoveries=Recoveries(store, "here", RetryPolicy()),
        retries=ScheduledRetries(store, "here", RetrySchedule((3, 27), ()), metrics),
        start_task=group.create_task,
        delays=FixedDelays((LATER_S,)),
        in_flight_max=8,
        queue_max=10**6,
        disable_after_failures=100,
        disable_after_s=LATER_S,
    )


@pytest.mark.parametrize(
    ("schedule_s", "delays_s"),
    [
        (None, (0, 3, 27)),
        ((5, 600), (0, 5, 600)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 601), (0, 1)),
    ],
)
def test_live_attempts_follow_the_schedule_as_far_as_the_setting_allows(
    store: Store, schedule_s: tuple[int, ...] | None, delays_s: tuple[float, ...]
) -> None:
    async def scenario() -> QueueContext:
        async with asyncio.TaskGroup() as group:
            return await context_of(store, PauseRecorder(), group)

    context = replace(asyncio.run(scenario()), delays=FixedDelays((0, 3, 27)))
    options = EndpointOptions(retry_schedule_s=schedule_s)
    webhook = replace(webhook_at("https://example.com/", Validation.PING), options=options)
    assert context.delays_of(webhook) == FixedDelays(delays_s)


def test_full_queues_leave_a_share_of_the_memory_to_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_context, "SHARED_BYTES", 1_000)
    recorder = PauseRecorder()
    partition = DeliveryPartition(0, PartitionProgress(0), Committed(-1, ""))

    def delivery(webhook_id: str) -> LiveDelivery:
        event = LoggedEvent(0, 0, webhook_id.encode(), "evt", "a.b", b"x" * 10)
        return LiveDelivery(partition, webhook_id, "evt", 0, event, 0.0, 10)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            context = await context_of(store, recorder, group)
            queues = {name: WebhookQueue(name, context) for name in "abcd"}
            for _ in range(40):
                for name in "abc":
                    queues[name].add(delivery(name))
            # Three slow receivers hold more than all may hold, and each more than its share.
            assert context.bytes_waiting > queue_context.SHARED_BYTES
            assert recorder.paused == {"a", "b", "c"}
            for _ in range(25):
                queues["d"].add(delivery("d"))
            assert "d" not in recorder.paused
            queues["d"].add(delivery("d"))
            queues["d"].add(delivery("d"))
            assert "d" in recorder.paused
            for queue in queues.values():
                queue.remove_partition(partition)
            assert (context.bytes_waiting, context.filled) == (0, set())
            assert recorder.skipped == []

    asyncio.run(scenario())
