"""The worker's view of a lease: it expires, is renewed, or is lost."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.model import Claim, Counts, Lease, NewReplay, NewWebhook, OffsetRange, Window
from app.replay_workers.errors import LeaseLost
from app.replay_workers.lease_keeper import LeaseKeeper, boot_clock_s
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated

LEASE_S = 60.0


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    with closing(Store.open(url)) as store:
        yield store


@pytest.fixture
def claim(store: Store) -> Claim:
    webhook = store.create_webhook(NewWebhook("https://example.com/hook", "test", new_secret()))
    store.create_replay(NewReplay(webhook.id, Window(1, 2)))
    claim = store.claim("worker", LEASE_S)
    assert claim is not None
    return claim


def keeper(store: Store, claim: Claim, clock: Clock) -> LeaseKeeper:
    return LeaseKeeper(
        store,
        claim.lease,
        lease_s=LEASE_S,
        heartbeat_s=1.0,
        sent_s=clock.now_s,
        clock=clock,
    )


def test_a_lease_is_held_from_when_the_claim_was_sent(store: Store, claim: Claim) -> None:
    async def scenario() -> None:
        clock = Clock()
        lease = keeper(store, claim, clock)
        clock.now_s += LEASE_S - 0.001
        assert lease.is_held()
        clock.now_s += 0.001
        assert not lease.is_held()

    asyncio.run(scenario())


def test_a_heartbeat_extends_the_lease_from_when_it_was_sent(store: Store, claim: Claim) -> None:
    async def scenario() -> None:
        clock = Clock()
        lease = keeper(store, claim, clock)
        clock.now_s += 50
        beat = asyncio.create_task(lease.send_heartbeat())
        await asyncio.sleep(0)
        clock.now_s += 7  # the answer takes its time
        await beat
        clock.now_s += LEASE_S - 7 - 0.001
        assert lease.is_held()
        clock.now_s += 0.001
        assert not lease.is_held()

    asyncio.run(scenario())


def test_a_wait_for_an_expired_lease_ends_when_it_is_renewed(store: Store, claim: Claim) -> None:
    async def scenario() -> None:
        clock = Clock()
        lease = keeper(store, claim, clock)
        clock.now_s += 2 * LEASE_S
        waiting = asyncio.create_task(lease.wait_until_held())
        await asyncio.sleep(0)
        assert not waiting.done()
        await lease.send_heartbeat()
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scenario())


def test_a_heartbeat_detects_a_takeover(store: Store, claim: Claim) -> None:
    async def scenario() -> None:
        store.release(claim.lease)
        assert store.claim("another worker", LEASE_S) is not None
        lease = keeper(store, claim, Clock())
        with pytest.raises(LeaseLost):
            await lease.send_heartbeat()

    asyncio.run(scenario())


def test_a_heartbeat_detects_a_cancellation(store: Store, claim: Claim) -> None:
    async def scenario() -> None:
        store.cancel_replay(claim.replay.id)
        with pytest.raises(LeaseLost):
            await keeper(store, claim, Clock()).send_heartbeat()

    asyncio.run(scenario())


def test_a_write_under_a_lost_lease_raises(store: Store, claim: Claim) -> None:
    async def scenario() -> None:
        store.cancel_replay(claim.replay.id)
        with pytest.raises(LeaseLost):
            await keeper(store, claim, Clock()).write(Store.complete)

    asyncio.run(scenario())


def test_a_cancelled_write_ends_before_the_next_one_starts(store: Store, claim: Claim) -> None:
    begun, may_end = threading.Event(), threading.Event()
    store.begin_delivery(claim.lease, OffsetRange(0, 0, 10))

    def write_late(store: Store, lease: Lease) -> bool:
        begun.set()
        may_end.wait(10)
        return store.checkpoint(lease, 5, Counts(delivered=5), ())

    async def scenario() -> None:
        lease = keeper(store, claim, Clock())
        late = asyncio.create_task(lease.write(write_late))
        await asyncio.to_thread(begun.wait, 10)
        late.cancel()
        await asyncio.wait([late], timeout=0.1)
        assert not late.done()
        may_end.set()
        await asyncio.wait([late])
        assert late.cancelled()
        await lease.write(lambda store, held: store.checkpoint(held, 10, Counts(delivered=10), ()))

    asyncio.run(scenario())
    assert store.replay(claim.replay.id).checkpoint == 10


def test_the_boot_clock_advances() -> None:
    before_s = boot_clock_s()
    assert boot_clock_s() >= before_s
