"""Samples of the progress of replays, and counts by HTTP status."""

import pytest
from sqlalchemy import update

from app.domain.model import Claim, Counts, Failure, Lease, OffsetRange
from app.store import ReplayNotFound, Store
from app.store.engine import Database
from app.store.tables import replay_samples, replays

OFFSETS = OffsetRange(3, 100, 200)


@pytest.fixture
def lease(store: Store, claimed: Claim) -> Lease:
    """The lease of a replay whose delivery has begun."""
    assert store.begin_delivery(claimed.lease, OFFSETS)
    return claimed.lease


def age_all(database_url: str, age_ms: int) -> None:
    """Make the starts of all replays, and all samples, older by `age_ms`."""
    database = Database(database_url)
    started_ms = replays.c.started_ms - age_ms
    database.write(lambda db: db.execute(update(replays).values(started_ms=started_ms)))
    at_ms = replay_samples.c.at_ms - age_ms
    database.write(lambda db: db.execute(update(replay_samples).values(at_ms=at_ms)))
    database.close()


def samples_of(store: Store, lease: Lease) -> list[tuple[int, Counts]]:
    return [(sample.checkpoint, sample.counts) for sample in store.samples(lease.replay_id)]


def test_delivery_begins_and_ends_with_a_sample(store: Store, lease: Lease) -> None:
    assert store.checkpoint(lease, 200, Counts(98, 1, 1), [])
    assert store.complete(lease)
    assert samples_of(store, lease) == [(100, Counts()), (200, Counts(98, 1, 1))]


def test_a_replay_before_delivery_has_no_samples(store: Store, claimed: Claim) -> None:
    assert store.fail(claimed.lease, "no")
    assert store.samples(claimed.replay.id) == ()


def test_a_checkpoint_adds_a_sample_only_if_one_is_due(
    store: Store, lease: Lease, database_url: str
) -> None:
    assert store.checkpoint(lease, 110, Counts(10), [], with_sample=True)
    assert samples_of(store, lease) == [(100, Counts())]
    age_all(database_url, 10_000)
    assert store.checkpoint(lease, 120, Counts(20), [])
    assert store.checkpoint(lease, 130, Counts(30), [], with_sample=True)
    assert store.checkpoint(lease, 140, Counts(40), [], with_sample=True)
    assert samples_of(store, lease) == [(100, Counts()), (130, Counts(30))]


def test_a_sample_has_its_time(store: Store, lease: Lease) -> None:
    assert store.complete(lease)
    begun, over = store.samples(lease.replay_id)
    replay = store.replay(lease.replay_id)
    assert replay.started_ms is not None
    assert replay.finished_ms is not None
    assert replay.started_ms <= begun.at_ms <= replay.finished_ms <= over.at_ms


def test_a_replay_that_runs_for_days_has_a_limited_number_of_samples(
    store: Store, lease: Lease, database_url: str
) -> None:
    age_all(database_url, 3_600_000)
    assert store.checkpoint(lease, 110, Counts(10), [], with_sample=True)
    for _ in range(5):
        assert store.postpone(lease, "the log is away", 0)
        claim = store.claim("two", 60)
        assert claim is not None
        lease = claim.lease
        assert store.begin_delivery(lease, OFFSETS)
        assert store.checkpoint(lease, 120, Counts(20), [], with_sample=True)
    assert samples_of(store, lease) == [(100, Counts()), (110, Counts(10))]


def test_the_last_checkpoint_after_a_cancellation_adds_a_sample(store: Store, lease: Lease) -> None:
    assert store.checkpoint(lease, 110, Counts(10), [])
    store.cancel_replay(lease.replay_id)
    assert samples_of(store, lease)[1:] == [(110, Counts(10))]
    assert store.checkpoint(lease, 120, Counts(20), [], with_sample=True)
    assert samples_of(store, lease)[-1] == (120, Counts(20))


def test_a_worker_without_the_lease_adds_no_sample(
    store: Store, lease: Lease, database_url: str
) -> None:
    assert store.heartbeat(lease, 0)
    assert store.claim("successor", 60) is not None
    age_all(database_url, 10_000)
    assert not store.checkpoint(lease, 190, Counts(90), [], with_sample=True)
    assert not store.complete(lease)
    assert samples_of(store, lease) == [(100, Counts())]


def test_samples_of_another_accounts_replay_are_not_found(store: Store, lease: Lease) -> None:
    with pytest.raises(ReplayNotFound):
        store.samples(lease.replay_id, of_account="acc_other")


def test_status_counts_are_stored_with_the_counts(store: Store, lease: Lease) -> None:
    assert store.replay(lease.replay_id).status_counts == {}
    statuses = {"200": 6, "204": 2, "503": 1, "none": 1}
    failures = [Failure(101, "evt", 6, 503, "no", 17, "down"), Failure(102, "evt", 6, None, "no")]
    assert store.checkpoint(lease, 110, Counts(8, 3, 2), failures, statuses)
    assert store.complete(lease)
    assert store.replay(lease.replay_id).status_counts == statuses
    assert store.failures(lease.replay_id).items == tuple(failures)


def test_a_repeated_failure_is_replaced(store: Store, lease: Lease) -> None:
    again = Failure(101, "evt", 2, 500, "HTTP 500", 30, "ü" * 1_024, 1_700, lease.worker)
    for failure in (Failure(101, "evt", 1, 503, "HTTP 503", 20, "down"), again):
        assert store.checkpoint(lease, 110, Counts(9, 0, 1), [failure])
    assert store.failures(lease.replay_id).items == (again,)


def test_status_counts_are_unknown_after_a_worker_of_the_previous_version(
    store: Store, lease: Lease, database_url: str
) -> None:
    assert store.checkpoint(lease, 110, Counts(10), [], {"200": 10})
    # The previous version writes a checkpoint without this column.
    database = Database(database_url)
    values = {"checkpoint_offset": 120, "delivered": 20}
    database.write(lambda db: db.execute(update(replays).values(values)))
    assert store.replay(lease.replay_id).status_counts is None
    # A successor of this version does not know the earlier statuses either.
    assert store.checkpoint(lease, 130, Counts(30), [], None)
    assert store.replay(lease.replay_id).status_counts is None
    database.close()


def test_no_samples_are_due_after_the_clock_went_back(
    store: Store, lease: Lease, database_url: str
) -> None:
    age_all(database_url, -3_600_000)
    assert store.checkpoint(lease, 150, Counts(50), [], with_sample=True)
    assert samples_of(store, lease) == [(100, Counts())]
    assert store.complete(lease)
    assert len(store.samples(lease.replay_id)) == 2
