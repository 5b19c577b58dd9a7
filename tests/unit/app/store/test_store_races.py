"""Concurrency: what must happen exactly once does, on both databases."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import pytest

from app.domain.account_notices import ENDPOINTS_PER_ACCOUNT_MAX, NewNoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import (
    Claim,
    Counts,
    IdempotencyKey,
    NewReplay,
    NewWebhook,
    OffsetRange,
    ReplayFilter,
    Webhook,
    Window,
)
from app.domain.states import ReplayState
from app.store import ActiveReplayExists, IllegalMove, Store, WebhookNotFound
from app.store.errors import TooManyNoticeEndpoints
from app.webhooks.signing import new_secret

OPEN = ReplayFilter(frozenset({ReplayState.OPEN}))

T = TypeVar("T")

THREADS = 8
WINDOW = Window(1_000, 2_000)


def at_once(work: Callable[[int], T]) -> list[T]:
    """The results of `work` in eight threads that start together."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> T:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(run, range(THREADS)))


def claim_until_none(store: Store, worker: str, lease_s: float = 3_600) -> list[Claim]:
    """All claims of this worker until no replay is open."""
    claims = []
    while store.replays(OPEN, limit=1).items:
        claim = store.claim(worker, lease_s)
        if claim is not None:
            claims.append(claim)
    return claims


@pytest.mark.long
def test_eight_workers_claim_a_hundred_replays_exactly_once(store: Store) -> None:
    for number in range(100):
        webhook = store.create_webhook(
            NewWebhook(f"https://example.com/{number}", "", new_secret())
        )
        store.create_replay(NewReplay(webhook.id, WINDOW))
    workers = at_once(lambda number: claim_until_none(store, f"worker {number}"))
    claims = [claim for claimed in workers for claim in claimed]
    assert len(claims) == 100
    assert set(Counter(claim.replay.id for claim in claims).values()) == {1}
    assert {claim.lease.epoch for claim in claims} == {1}


def test_one_worker_takes_over_an_expired_lease(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    assert store.claim("dead", 0) is not None
    successors = [
        claim for claim in at_once(lambda n: store.claim(f"successor {n}", 3_600)) if claim
    ]
    assert [successor.lease.epoch for successor in successors] == [2]


def test_either_the_old_worker_or_one_new_worker_has_the_lease(
    store: Store, webhook: Webhook
) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    sleeper = store.claim("sleeper", 0)
    assert sleeper is not None

    def resume_or_take_over(number: int) -> bool:
        if number == 0:
            return store.heartbeat(sleeper.lease, 3_600)
        return store.claim(f"successor {number}", 3_600) is not None

    at_once(resume_or_take_over)
    # Its heartbeat may come before the claim or after it; afterwards one epoch is in force.
    epoch = store.replay(sleeper.replay.id).lease_epoch
    assert store.heartbeat(sleeper.lease, 3_600) == (epoch == 1)
    assert epoch in (1, 2)


def test_one_of_many_replays_of_a_webhook_becomes_active(store: Store, webhook: Webhook) -> None:
    def create(_: int) -> str:
        try:
            return store.create_replay(NewReplay(webhook.id, WINDOW))[0].id
        except ActiveReplayExists as refused:
            return refused.replay_id

    ids = at_once(create)
    assert len(set(ids)) == 1
    assert [replay.id for replay in store.replays().items] == [ids[0]]


def test_concurrent_requests_with_one_key_create_one_replay(store: Store, webhook: Webhook) -> None:
    key = IdempotencyKey.of("key", b"body")
    answers = at_once(lambda _: store.create_replay(NewReplay(webhook.id, WINDOW), key))
    assert len({replay.id for replay, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1


def test_one_key_for_many_webhooks_creates_one_replay(store: Store) -> None:
    webhooks = [
        store.create_webhook(NewWebhook("https://example.com/", "", new_secret())) for _ in range(8)
    ]
    key = IdempotencyKey.of("key", b"the same body")
    answers = at_once(lambda n: store.create_replay(NewReplay(webhooks[n].id, WINDOW), key))
    assert len({replay.id for replay, _ in answers}) == 1
    assert len(store.replays().items) == 1


def test_concurrent_requests_create_no_more_than_the_allowed_notice_endpoints(
    store: Store,
) -> None:
    def create(_: int) -> int:
        new = NewNoticeEndpoint(DEFAULT_ACCOUNT, "https://example.com/n", "", new_secret())
        created = 0
        with suppress(TooManyNoticeEndpoints):
            while True:
                store.create_notice_endpoint(new)
                created += 1
        return created

    assert sum(at_once(create)) == ENDPOINTS_PER_ACCOUNT_MAX
    assert len(store.notice_endpoints().items) == ENDPOINTS_PER_ACCOUNT_MAX


def test_a_concurrent_cancellation_and_completion_end_a_replay_once(
    store: Store, claimed: Claim
) -> None:
    assert store.begin_delivery(claimed.lease, OffsetRange(0, 0, 10))

    def end(number: int) -> ReplayState | None:
        if number % 2:
            return ReplayState.COMPLETED if store.complete(claimed.lease) else None
        try:
            return store.cancel_replay(claimed.replay.id).state
        except IllegalMove:
            return None

    ends = [state for state in at_once(end) if state]
    assert ends == [store.replay(claimed.replay.id).state]


def test_one_of_many_concurrent_pauses_succeeds(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OffsetRange(0, 0, 10))

    def pause(_: int) -> bool:
        try:
            return store.pause_replay(claimed.replay.id).state is ReplayState.PAUSED
        except IllegalMove:
            return False

    assert at_once(pause).count(True) == 1
    assert store.replay(claimed.replay.id).state is ReplayState.PAUSED


def test_a_concurrent_pause_and_completion_have_one_result(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OffsetRange(0, 0, 10))

    def stop(number: int) -> ReplayState | None:
        if number % 2:
            return ReplayState.COMPLETED if store.complete(claimed.lease) else None
        try:
            return store.pause_replay(claimed.replay.id).state
        except IllegalMove:
            return None

    moves = [state for state in at_once(stop) if state]
    assert moves == [store.replay(claimed.replay.id).state]
    # A pause is not an end: only an ended replay frees its webhook and has a notice due.
    assert (store.replay(claimed.replay.id).finished_ms is None) == (moves == [ReplayState.PAUSED])


def test_a_replay_with_concurrent_pauses_and_resumes_has_one_worker(
    store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))

    def pause_resume_or_claim(number: int) -> list[Claim]:
        claims = []
        for _ in range(10):
            if number < 4:
                claims += [claim for claim in [store.claim(f"worker {number}", 3_600)] if claim]
                continue
            with suppress(IllegalMove):
                (store.pause_replay if number % 2 else store.resume_replay)(replay.id)
        return claims

    claims = [claim for each in at_once(pause_resume_or_claim) for claim in each]
    epochs = sorted(claim.lease.epoch for claim in claims)
    assert epochs == list(range(1, len(claims) + 1))
    assert store.replay(replay.id).lease_epoch == len(claims)
    holders = [claim for claim in claims if store.heartbeat(claim.lease, 3_600)]
    is_held = store.replay(replay.id).state is ReplayState.STARTED
    assert [claim.lease.epoch for claim in holders] == ([len(claims)] if is_held else [])


def test_no_active_replay_outlives_its_webhook(store: Store) -> None:
    webhooks = [
        store.create_webhook(NewWebhook("https://example.com/", "", new_secret())) for _ in range(8)
    ]

    def create_and_delete(number: int) -> None:
        for webhook in webhooks[number:] + webhooks[:number]:
            try:
                store.create_replay(NewReplay(webhook.id, WINDOW))
                store.delete_webhook(webhook.id)
            except (ActiveReplayExists, WebhookNotFound):
                continue

    at_once(create_and_delete)
    assert store.webhooks().items == ()
    assert store.replays(OPEN).items == ()


def test_concurrent_workers_lose_no_checkpoint(store: Store) -> None:
    for _ in range(THREADS):
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        store.create_replay(NewReplay(webhook.id, WINDOW))

    def work(number: int) -> str:
        claim = None
        while claim is None:
            claim = store.claim(f"worker {number}", 3_600)
        assert store.begin_delivery(claim.lease, OffsetRange(number, 0, 20))
        for offset in range(1, 21):
            assert store.heartbeat(claim.lease, 3_600)
            assert store.checkpoint(claim.lease, offset, Counts(delivered=offset), [])
        assert store.complete(claim.lease)
        return claim.replay.id

    ids = at_once(work)
    assert len(set(ids)) == THREADS
    finished = [store.replay(replay_id) for replay_id in ids]
    assert {replay.state for replay in finished} == {ReplayState.COMPLETED}
    assert {replay.counts for replay in finished} == {Counts(delivered=20)}
