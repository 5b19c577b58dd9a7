"""The sender of a replay: what counts as an attempt."""

import asyncio
from contextlib import closing
from pathlib import Path

from app.delivery.attempt import AttemptSender
from app.delivery.batch import Batch, CompletedBatches
from app.domain.checkpointing import DeliveryLedger
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
from app.replay_workers.sender import ReplaySender
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.receiver import WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated


def test_a_lease_that_expires_while_a_connection_is_opened_costs_no_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    # It is held before the attempt, expired when the request would leave, and held again.
    times_s = iter([0.0, 100.0])

    async def scenario(store: Store) -> Counts:
        receiver = WebhookReceiver()
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
                policy=RetryPolicy(attempts_max=1),
                lease=LeaseKeeper(
                    store,
                    claim.lease,
                    lease_s=60,
                    heartbeat_s=1,
                    sent_s=0,
                    clock=lambda: next(times_s, 0.0),
                ),
                checkpoint_age=CheckpointAge(3_600),
                rate_limiter=RateLimiter(1_000_000, 0.0),
                refused=lambda _reason: None,
                activity=ReplayActivity(0.0),
            )
            queue = ReplayQueue(
                ledger,
                replay_sender.deliver,
                in_flight_max=1,
                batch_events_max=1,
                start_task=group.create_task,
                request_checkpoint=lambda: None,
            )
            event = LoggedEvent(7, 1, None, "evt_1", "made", b"{}")
            await queue.add_batches(CompletedBatches([Batch([event], {0: 1}, 3, 8, {}, {})], {}, 8))
            queue.deliveries.close()
            await asyncio.wait_for(queue.deliveries.wait_until_done(), 10)
        await receiver.stop()
        return ledger.checkpoint().counts

    with closing(Store.open(url)) as store:
        assert asyncio.run(scenario(store)) == Counts(delivered=1)
