"""The moves of replays: one row per move, in the same transaction."""

import pytest

from app.domain.model import (
    AwaitedRestore,
    Claim,
    Counts,
    IdempotencyKey,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Webhook,
    Window,
)
from app.domain.moves import MoveEvent
from app.domain.options import Source
from app.domain.states import ReplayEvent, ReplayState
from app.store import ReplayNotFound, Store
from app.webhooks.signing import new_secret

WINDOW = Window(1_000, 2_000)
OFFSETS = OffsetRange(3, 100, 200)
NO_TIME = 0.0

MoveRow = tuple[MoveEvent, ReplayState, int, str | None, str | None]


def moves_of(store: Store, replay_id: str) -> list[MoveRow]:
    """The moves of a replay, without their times."""
    return [
        (move.event, move.state, move.lease_epoch, move.actor, move.reason)
        for move in store.moves(replay_id)
    ]


def claim_replay(store: Store, worker: str, lease_s: float = 3_600) -> Claim:
    claim = store.claim(worker, lease_s)
    assert claim is not None
    return claim


def test_every_event_but_heartbeats_and_checkpoints_is_a_move() -> None:
    not_recorded = {ReplayEvent.HEARTBEAT, ReplayEvent.CHECKPOINT}
    assert set(map(str, MoveEvent)) == {"create"} | set(map(str, set(ReplayEvent) - not_recorded))


def test_all_moves_of_a_replay_are_recorded(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW), actor="key_1")
    old_worker = claim_replay(store, "old_worker", NO_TIME)
    assert store.begin_delivery(old_worker.lease, OFFSETS)
    new_worker = claim_replay(store, "new_worker")
    assert not store.release(old_worker.lease)
    assert store.begin_delivery(new_worker.lease, OFFSETS)
    assert store.heartbeat(new_worker.lease, 60)
    assert store.checkpoint(new_worker.lease, 200, Counts(100), [])
    assert store.complete(new_worker.lease)
    assert moves_of(store, replay.id) == [
        (MoveEvent.CREATE, ReplayState.OPEN, 0, "key_1", None),
        (MoveEvent.CLAIM, ReplayState.STARTED, 1, "old_worker", None),
        (MoveEvent.BEGIN, ReplayState.ONGOING, 1, "old_worker", None),
        (MoveEvent.TAKE_OVER, ReplayState.ONGOING, 2, "new_worker", "no heartbeat from old_worker"),
        (MoveEvent.BEGIN, ReplayState.ONGOING, 2, "new_worker", None),
        (MoveEvent.COMPLETE, ReplayState.COMPLETED, 2, "new_worker", None),
    ]


def test_each_move_has_its_time(store: Store, claimed: Claim) -> None:
    created, first_claim = store.moves(claimed.replay.id)
    assert claimed.replay.started_ms is not None
    assert claimed.replay.created_ms <= created.at_ms <= claimed.replay.started_ms
    assert claimed.replay.started_ms <= first_claim.at_ms <= claimed.replay.started_ms + 60_000


def test_the_move_of_a_postponed_replay_has_its_reason(store: Store, claimed: Claim) -> None:
    assert store.release(claimed.lease)
    assert store.postpone(claim_replay(store, "two").lease, "the log is away", NO_TIME)
    assert store.fail(claim_replay(store, "three").lease, "no" * 9_000)
    given_back = (MoveEvent.RELEASE, ReplayState.OPEN, 1, "one", None)
    postponed = (MoveEvent.RELEASE, ReplayState.OPEN, 2, "two", "the log is away")
    failed = (MoveEvent.FAIL, ReplayState.FAILED, 3, "three", "no" * 2_000)
    assert moves_of(store, claimed.replay.id)[2::2] == [given_back, postponed, failed]


def test_moves_of_owners_have_the_id_of_their_api_key(store: Store, claimed: Claim) -> None:
    replay_id = claimed.replay.id
    store.pause_replay(replay_id, actor="key_1")
    store.resume_replay(replay_id, actor="key_2")
    store.cancel_replay(replay_id, actor="key_3")
    assert moves_of(store, replay_id)[2:] == [
        (MoveEvent.PAUSE, ReplayState.PAUSED, 1, "key_1", None),
        (MoveEvent.RESUME, ReplayState.OPEN, 1, "key_2", None),
        (MoveEvent.CANCEL, ReplayState.CANCELLED, 1, "key_3", None),
    ]


def test_the_deletion_of_a_webhook_is_the_reason_of_a_cancellation(
    store: Store, claimed: Claim
) -> None:
    store.delete_webhook(claimed.webhook.id, actor="key_9")
    cancelled = (MoveEvent.CANCEL, ReplayState.CANCELLED, 1, "key_9", "its webhook was deleted")
    assert moves_of(store, claimed.replay.id)[-1] == cancelled


def test_a_webhook_without_a_replay_can_be_deleted(store: Store, webhook: Webhook) -> None:
    store.delete_webhook(webhook.id, actor="key_9")
    assert store.find_webhook_accounts([webhook.id]) == {}


def test_restores_are_recorded_as_moves(store: Store, webhook: Webhook) -> None:
    awaits = AwaitedRestore(3, 500)
    new = NewReplay(webhook.id, WINDOW, source=Source.ARCHIVE, awaits=awaits)
    replay, _ = store.create_replay(new)
    store.record_missing_records(replay.id, "21 November", actor="key_1")
    store.pause_replay(replay.id)
    store.record_restore(replay.id, OFFSETS, actor="key_2")
    store.record_restore(replay.id, OFFSETS, actor="key_2")
    assert moves_of(store, replay.id) == [
        (MoveEvent.CREATE, ReplayState.OPEN, 0, None, None),
        (MoveEvent.RESTORE, ReplayState.OPEN, 0, "key_1", "not found: 21 November"),
        (MoveEvent.PAUSE, ReplayState.PAUSED, 0, None, None),
        (MoveEvent.RESTORE, ReplayState.PAUSED, 0, "key_2", None),
    ]


def test_a_repeated_request_records_one_creation(store: Store, webhook: Webhook) -> None:
    key, new = IdempotencyKey.of("once", b""), NewReplay(webhook.id, WINDOW)
    (replay, _), (again, _) = (store.create_replay(new, key) for _ in range(2))
    assert again == replay
    assert len(store.moves(replay.id)) == 1


# Hundreds of transactions, whose statements are those of the test below on SQLite.
@pytest.mark.parametrize(
    "migrated_url", [pytest.param("mariadb", marks=pytest.mark.processes)], indirect=True
)
def test_a_postponed_replay_keeps_its_creation_and_its_latest_moves(
    store: Store, claimed: Claim
) -> None:
    lease = claimed.lease
    for number in range(2, 114):
        assert store.postpone(lease, f"round {number}", NO_TIME)
        lease = claim_replay(store, f"worker {number}").lease
    moves = store.moves(claimed.replay.id)
    assert len(moves) == 202
    assert moves[0].event is MoveEvent.CREATE
    assert (moves[-1].actor, moves[-1].lease_epoch) == ("worker 113", 113)
    assert [move.at_ms for move in moves] == sorted(move.at_ms for move in moves)


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
def test_repeated_pauses_and_resumes_do_not_fill_the_table(store: Store, claimed: Claim) -> None:
    for _ in range(101):
        store.pause_replay(claimed.replay.id, actor="key_1")
        store.resume_replay(claimed.replay.id, actor="key_1")
    moves = store.moves(claimed.replay.id)
    assert len(moves) == 200
    assert moves[0].event is MoveEvent.CREATE
    assert moves[-1].event is MoveEvent.RESUME


def test_moves_of_another_accounts_replay_are_not_found(store: Store, claimed: Claim) -> None:
    assert store.moves(claimed.replay.id, of_account=claimed.replay.account_id)
    with pytest.raises(ReplayNotFound):
        store.moves(claimed.replay.id, of_account="acc_other")
    with pytest.raises(ReplayNotFound):
        store.moves("rpl_none")


def test_each_replay_has_its_own_moves(store: Store, claimed: Claim) -> None:
    other = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    replay, _ = store.create_replay(NewReplay(other.id, WINDOW))
    assert moves_of(store, replay.id) == [(MoveEvent.CREATE, ReplayState.OPEN, 0, None, None)]
