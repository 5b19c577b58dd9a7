"""The sender of a replay: what counts as an attempt."""

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from app.delivery.attempt import AttemptSender
from app.delivery.batch import BatchBuilder
from app.domain.checkpointing import DeliveryLedger
from app.domain.concurrency import ConcurrencyLimit
from app.domain.model import Counts, NewReplay, NewWebhook, Window
from app.domain.rates import RateLimiter
from app.domain.retry import RetryPolicy
from app.domain.turns import ReplayActivity
from app.log.event import LoggedEvent
from app.replay_workers.checkpoints import CheckpointAge
from app.replay_workers.endpoint import ReplayEndpoint
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.queue import ReplayQueue
from app.replay_workers.sender import MayPostpone, ReplaySender, never_postpones
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.receiver import WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated
from tests.support.processes.waiting import DEADLINE_S


class SelectiveReceiver(WebhookReceiver):
    """Accepts all events but one."""

    def __init__(self, rejected: str = "") -> None:
        self.ids: list[str] = []
        self._rejected = rejected
        super().__init__()

    def _handle(self, request: Any) -> Any:
        event_id = request.headers["webhook-id"]
        self.ids.append(event_id)
        self.answer(503 if event_id == self._rejected else 204)
        return super()._handle(request)


class BatchReceiver(WebhookReceiver):
    """Accepts batches of two events, except one batch."""

    def __init__(self, rejected: list[int]) -> None:
        self.bodies: list[list[int]] = []
        self._rejected = rejected
        super().__init__()

    def _handle(self, request: Any) -> Any:
        events = json.loads(request.body)
        self.bodies.append(events)
        status = 503 if events == self._rejected else 204
        self.answer(413 if len(events) > 2 else status)
        return super()._handle(request)


async def send_events(
    store: Store,
    receiver: WebhookReceiver,
    count: int,
    *,
    policy: RetryPolicy,
    clock: Callable[[], float] = lambda: 0.0,
    may_postpone: MayPostpone = never_postpones,
    batch_events: int = 1,
) -> Counts:
    """Send events with one sender task, as a worker does, and return their counts."""
    await receiver.start()
    webhook = store.create_webhook(NewWebhook(receiver.url, "", new_secret()))
    store.create_replay(NewReplay(webhook.id, Window(1, 2)))
    claim = store.claim("worker", 60)
    assert claim is not None
    ledger, guard = DeliveryLedger(0, Counts()), Guard(allow_private=True)
    async with WebhookSender(guard) as sender, asyncio.TaskGroup() as group:
        replay_sender = ReplaySender(
            replay_id=claim.replay.id,
            endpoint=ReplayEndpoint(claim.replay, webhook, guard),
            attempts=AttemptSender(sender, WorkerMetrics().deliveries),
            policy=policy,
            lease=LeaseKeeper(store, claim.lease, lease_s=60, heartbeat_s=1, sent_s=0, clock=clock),
            checkpoint_age=CheckpointAge(3_600),
            rate_limiter=RateLimiter(1_000_000, 0.0),
            refused=lambda _reason: None,
            activity=ReplayActivity(0.0),
            concurrency=ConcurrencyLimit(1),
            may_postpone=may_postpone,
            is_batched=batch_events > 1,
            events_max=batch_events,
        )
        queue = ReplayQueue(
            ledger,
            replay_sender.deliver,
            in_flight_max=1,
            batch_events_max=batch_events,
            start_task=group.create_task,
            request_checkpoint=lambda: None,
        )
        builder = BatchBuilder(batch_events)
        for at in range(count):
            builder.add_event(LoggedEvent(at, 1, None, f"evt_{at}", "made", b"%d" % at))
        builder.complete_batch()
        await queue.add_batches(builder.take_completed(count))
        queue.deliveries.close()
        await asyncio.wait_for(queue.deliveries.wait_until_done(), DEADLINE_S)
    await receiver.stop()
    return ledger.checkpoint().counts


def test_a_lease_that_expires_while_a_connection_is_opened_costs_no_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    # It is held before the attempt, expired when the request would leave, and held again.
    times_s = iter([0.0, 100.0])
    with closing(Store.open(url)) as store:
        sending = send_events(
            store,
            WebhookReceiver(),
            1,
            policy=RetryPolicy(attempts_max=1),
            clock=lambda: next(times_s, 0.0),
        )
        assert asyncio.run(sending) == Counts(delivered=1)


def test_a_recovery_sends_an_event_that_is_never_accepted_after_the_others_and_lists_it(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    receiver = SelectiveReceiver("evt_0")
    policy = RetryPolicy(base_s=0.001, cap_s=0.001)
    with closing(Store.open(url)) as store:
        sending = send_events(
            store,
            receiver,
            3,
            policy=policy,
            # As when its claims with one event left are used up.
            may_postpone=lambda *, is_alone: not is_alone,
        )
        assert asyncio.run(sending) == Counts(delivered=2, failed=1)
    alone = policy.attempts_max * ["evt_0"]
    assert receiver.ids == [*alone, "evt_1", "evt_2", *alone]


def test_a_recovery_sends_no_part_of_a_batch_again_that_was_accepted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    receiver = BatchReceiver(rejected=[2, 3])
    policy = RetryPolicy(base_s=0.001, cap_s=0.001)
    with closing(Store.open(url)) as store:
        sending = send_events(
            store,
            receiver,
            6,
            policy=policy,
            may_postpone=lambda *, is_alone: not is_alone,
            batch_events=4,
        )
        assert asyncio.run(sending) == Counts(delivered=4, failed=2)
    rejected = policy.attempts_max * [[2, 3]]
    assert receiver.bodies == [[0, 1, 2, 3], [0, 1], *rejected, [4, 5], *rejected]
