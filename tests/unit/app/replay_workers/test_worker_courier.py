"""One courier: what counts as an attempt."""

import asyncio
from contextlib import closing
from pathlib import Path

from app.domain.checkpointing import DeliveryLedger
from app.domain.endpoint_health import ProbedEndpointHealth
from app.domain.model import Counts, NewReplay, NewWebhook, Window
from app.domain.rates import RateLimiter
from app.domain.retry import RetryPolicy
from app.log.event import LoggedEvent
from app.replay_workers.backlog import Backlog
from app.replay_workers.courier import Courier, Route
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.packing import Packed, Parcel
from app.replay_workers.target import Target
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.receiver import WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated


def test_a_lease_that_ends_while_a_connection_is_made_costs_no_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    # It holds when the courier looks, has ended when the request is to leave, and holds again.
    looks = iter([0.0, 100.0])

    async def scenario(store: Store) -> Counts:
        receiver = WebhookReceiver()
        await receiver.start()
        webhook = store.create_webhook(NewWebhook(receiver.url, "", new_secret()))
        store.create_replay(NewReplay(webhook.id, Window(1, 2)))
        claim = store.claim("worker", 60)
        assert claim is not None
        policy, ledger = RetryPolicy(attempts_max=1), DeliveryLedger(0, Counts())
        guard, backlog = Guard(allow_private=True), Backlog(ledger, couriers=1, parcel_events=1)
        async with WebhookSender(guard) as sender:
            route = Route(
                replay_id=claim.replay.id,
                target=Target(claim.replay, webhook, guard),
                sender=sender,
                policy=policy,
                lease=LeaseKeeper(
                    store,
                    claim.lease,
                    lease_s=60,
                    heartbeat_s=1,
                    sent_s=0,
                    clock=lambda: next(looks, 0.0),
                ),
                backlog=backlog,
                health=ProbedEndpointHealth(policy),
                pace=RateLimiter(1_000_000, 0.0),
                metrics=WorkerMetrics().deliveries,
            )
            event = LoggedEvent(7, 1, None, "evt_1", "made", b"{}")
            await backlog.take_in(Packed([Parcel([event], {0: 1}, 3, 8, {}, {})], {}, 8))
            backlog.end()
            await asyncio.wait_for(Courier(route).run(), 10)
        await receiver.stop()
        return ledger.checkpoint().counts

    with closing(Store.open(url)) as store:
        assert asyncio.run(scenario(store)) == Counts(delivered=1)
