"""How far a replay was over time, and what its events were answered with."""

import pytest
from sqlalchemy import update

from app.domain.model import Claim, Counts, Failure, Lease, OffsetRange
from app.store import ReplayNotFound, Store
from app.store.engine import Database
from app.store.tables import replay_samples, replays

OFFSETS = OffsetRange(3, 100, 200)


@pytest.fixture
def lease(store: Store, claimed: Claim) -> Lease:
    """Of a replay whose delivery has begun."""
    assert store.begin_delivery(claimed.lease, OFFSETS)
    return claimed.lease


def grow_old(database_url: str, age_ms: int) -> None:
    """Have all replays be begun so long ago, and all samples be taken so long ago."""
    database = Database(database_url)
    started_ms = replays.c.started_ms - age_ms
    database.write(lambda db: db.execute(update(replays).values(started_ms=started_ms)))
    at_ms = replay_samples.c.at_ms - age_ms
    database.write(lambda db: db.execute(update(replay_samples).values(at_ms=at_ms)))
    database.close()


def taken(store: Store, lease: Lease) -> list[tuple[int, Counts]]:
    return [(sample.checkpoint, sample.counts) for sample in store.samples(lease.replay_id)]


def test_delivery_begins_with_a_sample_and_ends_with_one(store: Store, lease: Lease) -> None:
    assert store.checkpoint(lease, 200, Counts(98, 1, 1), [])
    assert store.complete(lease)
    assert taken(store, lease) == [(100, Counts()), (200, Counts(98, 1, 1))]


def test_a_replay_that_has_not_begun_has_no_samples(store: Store, claimed: Claim) -> None:
    assert store.fail(claimed.lease, "no")
    assert store.samples(claimed.replay.id) == ()


def test_a_checkpoint_is_sampled_only_when_it_is_time(
    store: Store, lease: Lease, database_url: str
) -> None:
    assert store.checkpoint(lease, 110, Counts(10), [], with_sample=True)
    assert taken(store, lease) == [(100, Counts())]
    grow_old(database_url, 10_000)
    assert store.checkpoint(lease, 120, Counts(20), [])
    assert store.checkpoint(lease, 130, Counts(30), [], with_sample=True)
    assert store.checkpoint(lease, 140, Counts(40), [], with_sample=True)
    assert taken(store, lease) == [(100, Counts()), (130, Counts(30))]


def test_a_sample_says_when_it_was_taken(store: Store, lease: Lease) -> None:
    assert store.complete(lease)
    begun, over = store.samples(lease.replay_id)
    replay = store.replay(lease.replay_id)
    assert replay.started_ms is not None
    assert replay.finished_ms is not None
    assert replay.started_ms <= begun.at_ms <= replay.finished_ms <= over.at_ms


def test_a_replay_that_goes_round_for_days_has_no_more_samples_than_another(
    store: Store, lease: Lease, database_url: str
) -> None:
    grow_old(database_url, 3_600_000)
    assert store.checkpoint(lease, 110, Counts(10), [], with_sample=True)
    for _ in range(5):
        assert store.postpone(lease, "the log is away", 0)
        claim = store.claim("two", 60)
        assert claim is not None
        lease = claim.lease
        assert store.begin_delivery(lease, OFFSETS)
        assert store.checkpoint(lease, 120, Counts(20), [], with_sample=True)
    assert taken(store, lease) == [(100, Counts()), (110, Counts(10))]


def test_who_was_cancelled_has_its_last_word_sampled(store: Store, lease: Lease) -> None:
    assert store.checkpoint(lease, 110, Counts(10), [])
    store.cancel_replay(lease.replay_id)
    assert taken(store, lease)[1:] == [(110, Counts(10))]
    assert store.checkpoint(lease, 120, Counts(20), [], with_sample=True)
    assert taken(store, lease)[-1] == (120, Counts(20))


def test_who_lost_the_lease_adds_no_sample(store: Store, lease: Lease, database_url: str) -> None:
    assert store.heartbeat(lease, 0)
    assert store.claim("heir", 60) is not None
    grow_old(database_url, 10_000)
    assert not store.checkpoint(lease, 190, Counts(90), [], with_sample=True)
    assert not store.complete(lease)
    assert taken(store, lease) == [(100, Counts())]


def test_samples_of_anothers_replay_are_not_found(store: Store, lease: Lease) -> None:
    with pytest.raises(ReplayNotFound):
        store.samples(lease.replay_id, of_account="acc_other")


def test_answers_are_stored_with_the_counts_that_they_add_up_to(store: Store, lease: Lease) -> None:
    assert store.replay(lease.replay_id).status_counts == {}
    statuses = {"200": 6, "204": 2, "503": 1, "none": 1}
    failures = [Failure(101, "evt", 6, 503, "no", 17, "down"), Failure(102, "evt", 6, None, "no")]
    assert store.checkpoint(lease, 110, Counts(8, 3, 2), failures, statuses)
    assert store.complete(lease)
    assert store.replay(lease.replay_id).status_counts == statuses
    assert store.failures(lease.replay_id).items == tuple(failures)


def test_a_failure_that_is_told_again_is_replaced_as_a_whole(store: Store, lease: Lease) -> None:
    again = Failure(101, "evt", 2, 500, "HTTP 500", 30, "ü" * 1_024)
    for failure in (Failure(101, "evt", 1, 503, "HTTP 503", 20, "down"), again):
        assert store.checkpoint(lease, 110, Counts(9, 0, 1), [failure])
    assert store.failures(lease.replay_id).items == (again,)


def test_a_worker_of_before_notes_no_answers_and_then_none_are_told(
    store: Store, lease: Lease, database_url: str
) -> None:
    assert store.checkpoint(lease, 110, Counts(10), [], {"200": 10})
    # As the version before writes a checkpoint, which knows no such column.
    database = Database(database_url)
    values = {"checkpoint_offset": 120, "delivered": 20}
    database.write(lambda db: db.execute(update(replays).values(values)))
    assert store.replay(lease.replay_id).status_counts is None
    # Its heir of this version cannot tell either.
    assert store.checkpoint(lease, 130, Counts(30), [], None)
    assert store.replay(lease.replay_id).status_counts is None
    database.close()


def test_a_clock_that_went_back_asks_for_no_samples_until_the_end(
    store: Store, lease: Lease, database_url: str
) -> None:
    grow_old(database_url, -3_600_000)
    assert store.checkpoint(lease, 150, Counts(50), [], with_sample=True)
    assert taken(store, lease) == [(100, Counts())]
    assert store.complete(lease)
    assert len(store.samples(lease.replay_id)) == 2
