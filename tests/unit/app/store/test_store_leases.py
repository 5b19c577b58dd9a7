import pytest

from app.domain.model import (
    Claim,
    Counts,
    Failure,
    Lease,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    Webhook,
    Window,
)
from app.domain.receiver_failure import ReceiverFailure
from app.domain.states import ReplayState
from app.store import InvalidCursor, Store
from app.webhooks.signing import new_secret

WINDOW = Window(1_000, 2_000)
OFFSETS = OffsetRange(3, 100, 200)
NO_TIME = 0.0
"""A lease that expires at once, by the database's clock."""


def new_replay(store: Store) -> Replay:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    return store.create_replay(NewReplay(webhook.id, WINDOW))[0]


def claim_replay(store: Store, worker: str, lease_s: float = 3_600) -> Claim:
    claim = store.claim(worker, lease_s)
    assert claim is not None
    return claim


def test_a_claim_without_open_replays_returns_none(store: Store, webhook: Webhook) -> None:
    assert store.claim("one", 60) is None


def test_a_claim_returns_the_replay_and_its_webhook(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    claim = claim_replay(store, "host:1")
    assert claim.webhook == webhook
    assert claim.lease == Lease(replay.id, 1)
    assert claim.replay == store.replay(replay.id)
    assert (claim.replay.state, claim.replay.worker) == (ReplayState.STARTED, "host:1")
    assert claim.replay.started_ms == claim.replay.heartbeat_ms
    assert claim.replay.started_ms is not None
    assert claim.replay.started_ms >= replay.created_ms


def test_a_held_replay_is_not_claimed_by_others(store: Store, claimed: Claim) -> None:
    assert store.claim("two", 60) is None


def test_the_oldest_open_replay_is_claimed_first(store: Store) -> None:
    replays = [new_replay(store) for _ in range(5)]
    in_order = sorted(replays, key=lambda replay: (replay.created_ms, replay.id))
    assert [claim_replay(store, "w").replay.id for _ in range(5)] == [
        replay.id for replay in in_order
    ]


def test_expired_leases_and_open_replays_are_claimed_in_order_of_waiting(store: Store) -> None:
    first = new_replay(store)
    dead = claim_replay(store, "dead", NO_TIME)
    second = new_replay(store)
    claims = [claim_replay(store, "alive") for _ in range(2)]
    assert {claim.replay.id for claim in claims} == {first.id, second.id}
    assert dead.replay.id == first.id
    assert store.claim("third", 60) is None


def test_a_takeover_keeps_the_progress(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    dead = claim_replay(store, "dead", NO_TIME)
    assert store.begin_delivery(dead.lease, OFFSETS)
    assert store.checkpoint(dead.lease, 150, Counts(40, 9, 1), [])
    successor = claim_replay(store, "successor")
    assert successor.lease == Lease(dead.replay.id, 2)
    assert (dead.is_takeover, successor.is_takeover) == (False, True)
    assert (successor.replay.state, successor.replay.worker) == (ReplayState.ONGOING, "successor")
    assert (successor.replay.offsets, successor.replay.checkpoint) == (OFFSETS, 150)
    assert successor.replay.counts == Counts(40, 9, 1)
    assert successor.replay.started_ms == dead.replay.started_ms


def test_a_worker_without_the_lease_changes_nothing(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    sleeper = claim_replay(store, "sleeper", NO_TIME)
    assert store.begin_delivery(sleeper.lease, OFFSETS)
    successor = claim_replay(store, "successor")
    before = store.replay(successor.replay.id)
    failure = Failure(120, "evt", 3, 500, "no")
    assert not store.heartbeat(sleeper.lease, 3_600)
    assert not store.begin_delivery(sleeper.lease, OffsetRange(0, 0, 1))
    assert not store.checkpoint(sleeper.lease, 199, Counts(99, 0, 0), [failure])
    assert not store.complete(sleeper.lease)
    assert not store.fail(sleeper.lease, "late")
    assert not store.release(sleeper.lease)
    assert store.replay(successor.replay.id) == before
    assert store.failures(successor.replay.id).items == ()
    assert store.begin_delivery(successor.lease, OFFSETS)
    assert store.checkpoint(successor.lease, 200, Counts(100, 0, 0), [])
    assert store.complete(successor.lease)


def test_an_expired_lease_can_be_extended_until_a_takeover(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    late = claim_replay(store, "late", NO_TIME)
    assert store.heartbeat(late.lease, 3_600)
    assert store.claim("two", 60) is None


def test_a_heartbeat_is_stored_and_can_shorten_the_lease(store: Store, claimed: Claim) -> None:
    assert store.heartbeat(claimed.lease, NO_TIME)
    beat = store.replay(claimed.replay.id).heartbeat_ms
    assert beat is not None
    assert beat >= (claimed.replay.heartbeat_ms or 0)
    assert claim_replay(store, "two").lease.epoch == 2


def test_delivery_begins_at_the_start_of_the_range(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    replay = store.replay(claimed.replay.id)
    assert (replay.state, replay.offsets, replay.checkpoint) == (ReplayState.ONGOING, OFFSETS, 100)


def test_beginning_delivery_again_keeps_the_checkpoint(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.checkpoint(claimed.lease, 150, Counts(50), [])
    assert store.begin_delivery(claimed.lease, OffsetRange(3, 100, 210))
    replay = store.replay(claimed.replay.id)
    assert (replay.offsets, replay.checkpoint) == (OffsetRange(3, 100, 210), 150)


def test_a_replay_before_delivery_cannot_be_checkpointed_or_completed(
    store: Store, claimed: Claim
) -> None:
    assert not store.checkpoint(claimed.lease, 1, Counts(1), [])
    assert not store.complete(claimed.lease)
    assert store.replay(claimed.replay.id) == claimed.replay


def test_checkpoint_and_failures_are_stored_together_and_once(store: Store, claimed: Claim) -> None:
    failures = [
        Failure(101, "evt_1", 6, 500, "HTTP 500"),
        Failure(105, "evt_2 🎉", 6, None, "connection refused"),
    ]
    assert store.begin_delivery(claimed.lease, OFFSETS)
    for _ in range(2):
        assert store.checkpoint(claimed.lease, 110, Counts(8, 0, 2), failures)
    assert store.checkpoint(
        claimed.lease, 111, Counts(8, 0, 3), [Failure(110, "evt_3", 1, 410, "gone")]
    )
    replay = store.replay(claimed.replay.id)
    assert (replay.checkpoint, replay.counts) == (111, Counts(8, 0, 3))
    page = store.failures(replay.id, limit=2)
    assert page.items == tuple(failures)
    rest = store.failures(replay.id, page.next_cursor, limit=2)
    assert rest.items == (Failure(110, "evt_3", 1, 410, "gone"),)
    assert rest.next_cursor is None
    with pytest.raises(InvalidCursor):
        store.failures(replay.id, "nonsense")


def test_many_failures_with_long_reasons_are_stored(store: Store, claimed: Claim) -> None:
    failures = [Failure(offset, "e" * 9_000, 1, None, "ü" * 90_000) for offset in range(2_000)]
    assert store.begin_delivery(claimed.lease, OffsetRange(0, 0, 2_000))
    assert store.checkpoint(claimed.lease, 2_000, Counts(failed=2_000), failures)
    page = store.failures(claimed.replay.id, limit=5_000)
    assert [failure.offset for failure in page.items] == list(range(2_000))
    assert {len(failure.reason) for failure in page.items} == {4_000}


def test_a_completed_replay_has_ended(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.complete(claimed.lease)
    replay = store.replay(claimed.replay.id)
    assert replay.state is ReplayState.COMPLETED
    assert replay.finished_ms is not None
    assert not store.complete(claimed.lease)
    assert not store.heartbeat(claimed.lease, 60)
    assert store.claim("two", 60) is None


def test_a_failed_replay_has_its_error(store: Store, claimed: Claim) -> None:
    assert store.fail(claimed.lease, "window is no longer retained" + "!" * 100_000)
    replay = store.replay(claimed.replay.id)
    assert replay.state is ReplayState.FAILED
    assert (replay.error or "").startswith("window is no longer retained!")
    assert replay.finished_ms is not None


def test_a_released_replay_keeps_its_place_in_the_queue_and_its_progress(
    store: Store, claimed: Claim
) -> None:
    later = new_replay(store)
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.checkpoint(claimed.lease, 150, Counts(50), [])
    assert store.release(claimed.lease)
    released = store.replay(claimed.replay.id)
    assert (released.state, released.worker) == (ReplayState.OPEN, None)
    assert not store.heartbeat(claimed.lease, 60)
    successor = claim_replay(store, "successor")
    assert successor.lease == Lease(claimed.replay.id, 2)
    assert not successor.is_takeover
    assert (successor.replay.checkpoint, successor.replay.counts) == (150, Counts(50))
    assert later.created_ms >= claimed.replay.created_ms


def test_a_cancellation_ends_the_lease(store: Store, claimed: Claim) -> None:
    store.cancel_replay(claimed.replay.id)
    assert not store.heartbeat(claimed.lease, 60)
    assert not store.begin_delivery(claimed.lease, OFFSETS)
    assert not store.release(claimed.lease)
    assert store.replay(claimed.replay.id).state is ReplayState.CANCELLED


def test_the_failures_of_a_receiver_are_shown_while_a_worker_delivers(
    store: Store, claimed: Claim
) -> None:
    failure = ReceiverFailure(7, 1_000, 2_000, 503, "HTTP 503", 3_000, 40)
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.store_receiver_failure(claimed.lease, failure)
    assert store.replay(claimed.replay.id).receiver_failure == failure
    assert store.store_receiver_failure(claimed.lease, None)
    assert store.replay(claimed.replay.id).receiver_failure is None
    assert store.store_receiver_failure(claimed.lease, failure)
    assert store.release(claimed.lease)
    assert store.replay(claimed.replay.id).receiver_failure is None
    assert not store.store_receiver_failure(claimed.lease, failure)
    again = claim_replay(store, "two")
    assert store.begin_delivery(again.lease, OFFSETS)
    assert store.replay(claimed.replay.id).receiver_failure is None
