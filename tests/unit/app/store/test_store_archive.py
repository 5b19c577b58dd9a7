"""Replays of the archive: they are claimed after their restore, by workers of their data centre."""

from dataclasses import replace

import pytest
from sqlalchemy import text, update

from app.domain.model import (
    AwaitedRestore,
    Claim,
    Counts,
    Failure,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    Window,
)
from app.domain.options import Source
from app.domain.states import ReplayState
from app.domain.windows import DAY_MS
from app.store import NothingToRestore, Store
from app.store.engine import Database
from app.store.tables import replays
from app.webhooks.signing import new_secret

HERE = "here"
AWAITS = AwaitedRestore(partition=3, below=500)
OFFSETS = OffsetRange(3, 10, 20)


def new_replay(
    store: Store,
    awaits: AwaitedRestore = AWAITS,
    origin: str = HERE,
    retry_of: Replay | None = None,
) -> Replay:
    if retry_of is None:
        hook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret())).id
        new = NewReplay(hook, Window(1, 2), origin=origin, source=Source.ARCHIVE, awaits=awaits)
    else:
        new = NewReplay(
            retry_of.webhook_id,
            retry_of.window,
            retry_of=retry_of.id,
            origin=origin,
            source=Source.ARCHIVE,
        )
    return store.create_replay(new)[0]


def claim_replay(store: Store, lease_s: float = 60) -> Claim:
    claim = store.claim("worker", lease_s, HERE)
    assert claim is not None
    return claim


def test_a_replay_is_claimed_only_after_its_restore(store: Store) -> None:
    replay = new_replay(store)
    assert (replay.state, replay.awaits, replay.offsets) == (ReplayState.OPEN, AWAITS, None)
    assert store.claim("worker", 60, HERE) is None
    with_missing = store.record_missing_records(replay.id, "x" * 5_000)
    assert with_missing.awaits == replace(AWAITS, missing="x" * 2_000)
    # Neither a pause nor what follows lets anybody have it.
    store.pause_replay(replay.id)
    assert store.resume_replay(replay.id).awaits == with_missing.awaits
    assert store.claim("worker", 60, HERE) is None
    ready = store.record_restore(replay.id, OFFSETS)
    assert (ready.state, ready.awaits, ready.offsets) == (ReplayState.OPEN, None, OFFSETS)
    assert store.record_restore(replay.id, OFFSETS) == ready
    assert store.claim("worker", 60, "elsewhere") is None
    claim = claim_replay(store)
    assert (claim.replay.id, claim.replay.source) == (replay.id, Source.ARCHIVE)
    # A repeated report, of a job that lost the response, changes nothing.
    assert store.record_restore(replay.id, OFFSETS).lease_epoch == claim.lease.epoch
    assert store.begin_delivery(claim.lease, OFFSETS)


def test_a_restore_that_no_replay_awaits_is_rejected(store: Store) -> None:
    of_log, _ = store.create_replay(NewReplay(new_webhook(store), Window(1, 2), origin=HERE))
    over, there = new_replay(store), new_replay(store)
    assert store.cancel_replay(over.id).awaits is None
    store.record_restore(there.id, OFFSETS)
    for replay_id in (of_log.id, over.id, there.id):
        with pytest.raises(NothingToRestore):
            store.record_restore(replay_id, OffsetRange(3, 11, 20))
        with pytest.raises(NothingToRestore):
            store.record_missing_records(replay_id, "all of it")


def new_webhook(store: Store) -> str:
    return store.create_webhook(NewWebhook("https://example.com/", "", new_secret())).id


def test_a_replay_restored_while_paused_is_claimed_after_the_resume(store: Store) -> None:
    replay = new_replay(store)
    store.pause_replay(replay.id)
    assert store.record_restore(replay.id, OFFSETS).state is ReplayState.PAUSED
    assert store.claim("worker", 60, HERE) is None
    store.resume_replay(replay.id)
    claim = claim_replay(store)
    # Afterwards it is like any replay: released, taken over, postponed.
    assert store.release(claim.lease)
    old_worker = claim_replay(store, lease_s=0)
    new_worker = claim_replay(store)
    assert new_worker.is_takeover
    assert (store.heartbeat(old_worker.lease, 60), store.heartbeat(new_worker.lease, 60)) == (
        False,
        True,
    )
    assert store.claim("worker", 60, HERE) is None
    assert store.postpone(new_worker.lease, "the log", 0)
    assert claim_replay(store).replay.id == replay.id


def test_the_longest_waiting_replay_of_both_sources_is_claimed_first(
    store: Store, database_url: str
) -> None:
    expected = []
    for number in range(6):
        if number % 2:
            replay = new_replay(store)
            store.record_restore(replay.id, OFFSETS)
        else:
            replay, _ = store.create_replay(
                NewReplay(new_webhook(store), Window(1, 2), origin=HERE)
            )
        age(database_url, replay, claimable_ms=60_000 - number * 1_000)
        expected.append(replay.id)
    assert [claim_replay(store).replay.id for _ in expected] == expected


def age(database_url: str, replay: Replay, **earlier_ms: int) -> None:
    database = Database(database_url)
    values = {name: replays.c[name] - ms for name, ms in earlier_ms.items()}
    statement = update(replays).where(replays.c.id == replay.id).values(values)
    database.write(lambda db: db.execute(statement))
    database.close()


def test_a_worker_of_the_previous_version_claims_no_archive_replay(
    store: Store, database_url: str
) -> None:
    """It would read their offsets in `delivery_log`."""
    waiting, there = new_replay(store), new_replay(store)
    store.record_restore(there.id, OFFSETS)
    old_worker = claim_replay(store, lease_s=0)
    assert old_worker.replay.id == there.id
    query = text(
        "SELECT count(*) FROM replays WHERE origin IN ('', 'here') AND claimable_ms <= :far"
        " AND state IN ('OPEN', 'STARTED', 'ONGOING')"
    )
    database = Database(database_url)
    found = database.read(lambda db: db.execute(query, {"far": 4_000_000_000_000}).scalar())
    database.close()
    assert found == 0
    assert waiting.id != claim_replay(store).replay.id == there.id


def test_the_restore_job_reads_awaiting_replays_and_needed_offsets(
    store: Store, database_url: str
) -> None:
    second, first = new_replay(store), new_replay(store, AwaitedRestore(1, 9))
    new_replay(store, origin="elsewhere")
    age(database_url, first, created_ms=90_000)
    found = store.awaiting_restore(HERE, 10)
    assert [each.id for each in found.replays] == [first.id, second.id]
    assert (found.further_partitions, found.needed_from) == (frozenset(), {})
    assert store.awaiting_restore(HERE, 1).further_partitions == {3}
    statistics = store.job_statistics(HERE)
    assert 90 <= statistics.oldest_unrestored_s[HERE] < 3_600
    assert statistics.oldest_open_s[HERE] == 0
    store.record_restore(second.id, OFFSETS)
    third = new_replay(store)
    store.record_restore(third.id, OffsetRange(3, 15, 40))
    assert store.awaiting_restore(HERE, 10).needed_from == {3: 10}
    # A replay that ended well needs nothing more.
    while (claim := store.claim("worker", 60, HERE)) is not None:
        assert claim.replay.offsets is not None
        assert store.begin_delivery(claim.lease, claim.replay.offsets)
        failed = [Failure(17, "evt", 1, 500, ""), Failure(30, "evt", 1, 500, "")]
        failures = failed if claim.replay.id == third.id else []
        counts = Counts(delivered=5, failed=len(failures))
        assert store.checkpoint(claim.lease, 20, counts, failures)
        assert store.complete(claim.lease)
    assert store.awaiting_restore(HERE, 10).needed_from == {3: 15}
    # What failed may be tried again for a day, and who does so needs it longer.
    retry = new_replay(store, retry_of=third)
    assert (retry.awaits, retry.offsets) == (None, OffsetRange(3, 17, 31))
    age(database_url, third, finished_ms=DAY_MS + 1_000)
    assert store.awaiting_restore(HERE, 10).needed_from == {3: 17}
    assert claim_replay(store).replay.id == retry.id
