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
from app.domain.states import ReplayState
from app.store import InvalidCursor, Store
from app.webhooks.signing import new_secret

WINDOW = Window(1_000, 2_000)
OFFSETS = OffsetRange(3, 100, 200)
NO_TIME = 0.0
"""A lease that has ended when it begins, by the database's own clock."""


def new_replay(store: Store) -> Replay:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    return store.create_replay(NewReplay(webhook.id, WINDOW))[0]


def taken(store: Store, worker: str, lease_s: float = 3_600) -> Claim:
    claim = store.claim(worker, lease_s)
    assert claim is not None
    return claim


def test_nothing_open_is_nothing_to_claim(store: Store, webhook: Webhook) -> None:
    assert store.claim("one", 60) is None


def test_a_claim_hands_over_the_replay_and_its_webhook(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    claim = taken(store, "host:1")
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
    assert [taken(store, "w").replay.id for _ in range(5)] == [replay.id for replay in in_order]


def test_replays_without_a_sign_of_life_and_open_ones_are_claimed_in_turn(store: Store) -> None:
    first = new_replay(store)
    dead = taken(store, "dead", NO_TIME)
    second = new_replay(store)
    claims = [taken(store, "alive") for _ in range(2)]
    assert {claim.replay.id for claim in claims} == {first.id, second.id}
    assert dead.replay.id == first.id
    assert store.claim("third", 60) is None


def test_a_dead_holder_loses_its_job_where_it_stands(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    dead = taken(store, "dead", NO_TIME)
    assert store.begin_delivery(dead.lease, OFFSETS)
    assert store.checkpoint(dead.lease, 150, Counts(40, 9, 1), [])
    heir = taken(store, "heir")
    assert heir.lease == Lease(dead.replay.id, 2)
    assert (dead.is_takeover, heir.is_takeover) == (False, True)
    assert (heir.replay.state, heir.replay.worker) == (ReplayState.ONGOING, "heir")
    assert (heir.replay.offsets, heir.replay.checkpoint) == (OFFSETS, 150)
    assert heir.replay.counts == Counts(40, 9, 1)
    assert heir.replay.started_ms == dead.replay.started_ms


def test_who_lost_the_lease_changes_nothing(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    sleeper = taken(store, "sleeper", NO_TIME)
    assert store.begin_delivery(sleeper.lease, OFFSETS)
    heir = taken(store, "heir")
    before = store.replay(heir.replay.id)
    failure = Failure(120, "evt", 3, 500, "no")
    assert not store.heartbeat(sleeper.lease, 3_600)
    assert not store.begin_delivery(sleeper.lease, OffsetRange(0, 0, 1))
    assert not store.checkpoint(sleeper.lease, 199, Counts(99, 0, 0), [failure])
    assert not store.complete(sleeper.lease)
    assert not store.fail(sleeper.lease, "late")
    assert not store.release(sleeper.lease)
    assert store.replay(heir.replay.id) == before
    assert store.failures(heir.replay.id).items == ()
    assert store.begin_delivery(heir.lease, OFFSETS)
    assert store.checkpoint(heir.lease, 200, Counts(100, 0, 0), [])
    assert store.complete(heir.lease)


def test_a_lease_that_nobody_took_can_be_kept_on(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    late = taken(store, "late", NO_TIME)
    assert store.heartbeat(late.lease, 3_600)
    assert store.claim("two", 60) is None


def test_a_heartbeat_is_seen_and_may_end_the_lease_at_once(store: Store, claimed: Claim) -> None:
    assert store.heartbeat(claimed.lease, NO_TIME)
    beat = store.replay(claimed.replay.id).heartbeat_ms
    assert beat is not None
    assert beat >= (claimed.replay.heartbeat_ms or 0)
    assert taken(store, "two").lease.epoch == 2


def test_delivery_begins_at_the_start_of_the_range(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    replay = store.replay(claimed.replay.id)
    assert (replay.state, replay.offsets, replay.checkpoint) == (ReplayState.ONGOING, OFFSETS, 100)


def test_beginning_again_keeps_the_checkpoint(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.checkpoint(claimed.lease, 150, Counts(50), [])
    assert store.begin_delivery(claimed.lease, OffsetRange(3, 100, 210))
    replay = store.replay(claimed.replay.id)
    assert (replay.offsets, replay.checkpoint) == (OffsetRange(3, 100, 210), 150)


def test_a_job_that_has_not_begun_has_no_checkpoint_and_no_end(
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


def test_failures_may_be_many_and_their_reasons_long(store: Store, claimed: Claim) -> None:
    failures = [Failure(offset, "e" * 9_000, 1, None, "ü" * 90_000) for offset in range(2_000)]
    assert store.begin_delivery(claimed.lease, OffsetRange(0, 0, 2_000))
    assert store.checkpoint(claimed.lease, 2_000, Counts(failed=2_000), failures)
    page = store.failures(claimed.replay.id, limit=5_000)
    assert [failure.offset for failure in page.items] == list(range(2_000))
    assert {len(failure.reason) for failure in page.items} == {4_000}


def test_a_completed_replay_is_over(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.complete(claimed.lease)
    replay = store.replay(claimed.replay.id)
    assert replay.state is ReplayState.COMPLETED
    assert replay.finished_ms is not None
    assert not store.complete(claimed.lease)
    assert not store.heartbeat(claimed.lease, 60)
    assert store.claim("two", 60) is None


def test_a_failed_replay_says_why(store: Store, claimed: Claim) -> None:
    assert store.fail(claimed.lease, "window is no longer retained" + "!" * 100_000)
    replay = store.replay(claimed.replay.id)
    assert replay.state is ReplayState.FAILED
    assert (replay.error or "").startswith("window is no longer retained!")
    assert replay.finished_ms is not None


def test_a_released_job_is_first_in_line_and_goes_on_where_it_stood(
    store: Store, claimed: Claim
) -> None:
    later = new_replay(store)
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.checkpoint(claimed.lease, 150, Counts(50), [])
    assert store.release(claimed.lease)
    released = store.replay(claimed.replay.id)
    assert (released.state, released.worker) == (ReplayState.OPEN, None)
    assert not store.heartbeat(claimed.lease, 60)
    heir = taken(store, "heir")
    assert heir.lease == Lease(claimed.replay.id, 2)
    assert not heir.is_takeover
    assert (heir.replay.checkpoint, heir.replay.counts) == (150, Counts(50))
    assert later.created_ms >= claimed.replay.created_ms


def test_a_cancelled_job_is_taken_from_its_worker(store: Store, claimed: Claim) -> None:
    store.cancel_replay(claimed.replay.id)
    assert not store.heartbeat(claimed.lease, 60)
    assert not store.begin_delivery(claimed.lease, OFFSETS)
    assert not store.release(claimed.lease)
    assert store.replay(claimed.replay.id).state is ReplayState.CANCELLED
