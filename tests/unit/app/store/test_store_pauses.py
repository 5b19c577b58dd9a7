"""Pause and resume, last checkpoints, postponed replays, and claims without progress."""

from collections.abc import Callable

import pytest

from app.domain.model import (
    Claim,
    Counts,
    Failure,
    NewReplay,
    OffsetRange,
    Replay,
    Webhook,
    Window,
)
from app.domain.moves import MoveEvent
from app.domain.options import NoticeStyle, Only, ReplayOptions
from app.domain.states import ReplayEvent, ReplayState
from app.store import (
    ActiveReplayExists,
    IllegalMove,
    NothingToRetry,
    ReplayNotFound,
    ReplayNotOver,
    Store,
    WebhookNotFound,
)

WINDOW = Window(1_000, 2_000)
OFFSETS = OffsetRange(3, 100, 200)
FAILURE = Failure(120, "evt", 6, 500, "HTTP 500")


def claimed_again(store: Store, lease_s: float = 3_600) -> Claim:
    claim = store.claim("two", lease_s)
    assert claim is not None
    return claim


def test_a_replay_is_stored_with_all_options(store: Store, webhook: Webhook) -> None:
    options = ReplayOptions(
        ("follow.*", "ü"), Only.FAILED, 10, 1, 100, "https://example.com/elsewhere"
    )
    new = NewReplay(webhook.id, WINDOW, options, notice=NoticeStyle.TWITTER)
    replay, _ = store.create_replay(new)
    assert (replay.options, replay.notice, replay.retry_of) == (options, NoticeStyle.TWITTER, None)
    claim = store.claim("one", 60)
    assert claim is not None
    assert claim.replay.options == options


def test_a_paused_replay_is_not_claimed_until_it_is_resumed(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    paused = store.pause_replay(replay.id)
    assert (paused.state, paused.finished_ms) == (ReplayState.PAUSED, None)
    assert store.claim("one", 60) is None
    resumed = store.resume_replay(replay.id)
    assert resumed.state is ReplayState.OPEN
    assert claimed_again(store).replay.id == replay.id


def test_a_paused_replay_is_active(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    store.pause_replay(replay.id)
    store.delete_webhook(webhook.id)
    assert store.replay(replay.id).state is ReplayState.CANCELLED


def test_a_worker_can_store_a_last_checkpoint_after_a_pause(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    store.pause_replay(claimed.replay.id)
    assert not store.heartbeat(claimed.lease, 60)
    assert not store.begin_delivery(claimed.lease, OFFSETS)
    assert store.checkpoint(claimed.lease, 150, Counts(49, 0, 1), [FAILURE])
    assert not store.complete(claimed.lease)
    assert not store.fail(claimed.lease, "no")
    assert not store.release(claimed.lease)
    paused = store.replay(claimed.replay.id)
    assert (paused.state, paused.checkpoint) == (ReplayState.PAUSED, 150)
    assert paused.counts == Counts(49, 0, 1)
    assert store.failures(paused.id).items == (FAILURE,)
    assert store.claim("two", 60) is None


def test_a_resumed_replay_continues_without_its_former_worker(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.checkpoint(claimed.lease, 150, Counts(50), [])
    store.pause_replay(claimed.replay.id)
    resumed = store.resume_replay(claimed.replay.id)
    assert (resumed.state, resumed.worker, resumed.checkpoint) == (ReplayState.OPEN, None, 150)
    # Its former holder may wake before or after somebody else has claimed it.
    assert not store.checkpoint(claimed.lease, 160, Counts(60), [])
    assert not store.heartbeat(claimed.lease, 60)
    successor = claimed_again(store)
    assert successor.lease.epoch == claimed.lease.epoch + 1
    assert not store.checkpoint(claimed.lease, 170, Counts(70), [FAILURE])
    assert store.replay(successor.replay.id) == successor.replay
    assert store.failures(successor.replay.id).items == ()


def test_the_last_checkpoint_does_not_revive_a_cancelled_replay(
    store: Store, claimed: Claim
) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    cancelled = store.cancel_replay(claimed.replay.id)
    assert store.checkpoint(claimed.lease, 150, Counts(49, 0, 1), [FAILURE])
    stored = store.replay(claimed.replay.id)
    assert (stored.state, stored.checkpoint) == (ReplayState.CANCELLED, 150)
    assert stored.finished_ms == cancelled.finished_ms
    assert store.claim("two", 60) is None
    webhook_id = claimed.webhook.id
    assert store.create_replay(NewReplay(webhook_id, WINDOW))[1]


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_an_ended_replay_cannot_be_paused_or_resumed(
    store: Store, claimed: Claim, end: str
) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    ends: dict[str, Callable[[], object]] = {
        "complete": lambda: store.complete(claimed.lease),
        "fail": lambda: store.fail(claimed.lease, "broken"),
        "cancel": lambda: store.cancel_replay(claimed.replay.id),
    }
    ends[end]()
    over = store.replay(claimed.replay.id)
    refused = [store.pause_replay] if end == "fail" else [store.pause_replay, store.resume_replay]
    for move in refused:
        with pytest.raises(IllegalMove, match=f"is {over.state}: "):
            move(over.id)
    assert store.replay(over.id) == over
    assert store.move_replays([over.id], ReplayEvent.RESUME, actor=None) == 0


def failed_at(store: Store, claimed: Claim, checkpoint: int) -> Replay:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    failures = [Failure(120, "evt", 6, 500, "no")]
    assert store.checkpoint(claimed.lease, checkpoint, Counts(9, 0, 1), failures)
    assert store.fail(claimed.lease, "it is down")
    return store.replay(claimed.replay.id)


def test_a_failed_replay_is_resumed_at_its_checkpoint(store: Store, claimed: Claim) -> None:
    failed = failed_at(store, claimed, 130)
    notice = store.claim_notice(60)
    assert store.enable_webhook(claimed.webhook.id, claimed.webhook.url)
    resumed = store.resume_replay(failed.id, actor="key_1")
    assert (resumed.state, resumed.error, resumed.finished_ms) == (ReplayState.OPEN, None, None)
    assert (resumed.checkpoint, resumed.counts) == (130, Counts(9, 0, 1))
    if notice is not None:
        store.finish_notice_attempt(notice, 0)
    assert store.claim_notice(60) is None
    with pytest.raises(ActiveReplayExists):
        store.create_replay(NewReplay(claimed.webhook.id, WINDOW))
    again = store.claim("two", 60)
    assert again is not None
    assert (again.replay.id, again.replay.checkpoint) == (failed.id, 130)
    assert store.begin_delivery(again.lease, OFFSETS)
    assert store.complete(again.lease)
    assert store.replay(failed.id).state is ReplayState.COMPLETED
    assert [move.event for move in store.moves(failed.id)][-4:] == [
        *(MoveEvent.RESUME, MoveEvent.CLAIM, MoveEvent.BEGIN, MoveEvent.COMPLETE)
    ]


def test_a_failed_replay_is_not_resumed_next_to_another_one(store: Store, claimed: Claim) -> None:
    failed = failed_at(store, claimed, 130)
    other, _ = store.create_replay(NewReplay(claimed.webhook.id, WINDOW))
    with pytest.raises(ActiveReplayExists):
        store.resume_replay(failed.id)
    store.cancel_replay(other.id)
    store.delete_webhook(claimed.webhook.id)
    with pytest.raises(WebhookNotFound):
        store.resume_replay(failed.id)
    assert store.replay(failed.id) == failed


def test_a_retry_covers_failures_and_what_was_not_reached(store: Store, claimed: Claim) -> None:
    failed = failed_at(store, claimed, 130)
    assert store.offsets_to_retry(failed.id) == OffsetRange(OFFSETS.partition, 120, OFFSETS.end)
    retry, _ = store.create_replay(NewReplay(failed.webhook_id, WINDOW, retry_of=failed.id))
    store.cancel_replay(retry.id)
    # It never knew its offsets: a retry of it looks the window up again.
    assert store.offsets_to_retry(retry.id) is None
    assert store.create_replay(NewReplay(failed.webhook_id, WINDOW, retry_of=retry.id))[1]


def test_a_second_pause_or_resume_is_rejected(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    with pytest.raises(IllegalMove, match="is OPEN: resume is not possible"):
        store.resume_replay(replay.id)
    store.pause_replay(replay.id)
    with pytest.raises(IllegalMove) as refused:
        store.pause_replay(replay.id)
    assert (refused.value.state, refused.value.event) == (ReplayState.PAUSED, ReplayEvent.PAUSE)


def test_an_unknown_replay_cannot_be_moved(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    for replay_id in ("rpl_none", replay.id + " ", replay.id.upper()):
        for move in (store.pause_replay, store.resume_replay, store.cancel_replay):
            with pytest.raises(ReplayNotFound):
                move(replay_id)
    assert store.replay(replay.id) == replay


def test_a_postponed_replay_has_a_reason_and_is_claimable_after_the_pause(
    store: Store, claimed: Claim
) -> None:
    assert store.postpone(claimed.lease, "the log does not answer", 3_600)
    waiting = store.replay(claimed.replay.id)
    assert (waiting.state, waiting.worker) == (ReplayState.OPEN, None)
    assert waiting.waiting_for == "the log does not answer"
    assert waiting.error is None
    assert store.claim("two", 60) is None
    assert not store.postpone(claimed.lease, "again", 0)


def test_the_reason_of_a_wait_is_removed_when_delivery_begins(store: Store, claimed: Claim) -> None:
    assert store.postpone(claimed.lease, "ü" * 90_000, 0)
    successor = claimed_again(store)
    assert successor.replay.waiting_for == "ü" * 4_000
    assert store.begin_delivery(successor.lease, OFFSETS)
    assert store.replay(successor.replay.id).waiting_for is None


@pytest.mark.parametrize("move", ["pause", "cancel"])
def test_the_reason_of_a_wait_is_removed_by_a_pause_or_cancellation(
    store: Store, claimed: Claim, move: str
) -> None:
    assert store.postpone(claimed.lease, "the log does not answer", 3_600)
    stop = {"pause": store.pause_replay, "cancel": store.cancel_replay}[move]
    assert stop(claimed.replay.id).waiting_for is None


def claim_and_crash(store: Store) -> Claim:
    """A claim whose worker crashes."""
    return claimed_again(store, lease_s=0)


def test_claims_without_progress_are_counted(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    assert [claim_and_crash(store).replay.claims_without_progress for _ in range(3)] == [1, 2, 3]
    assert store.replay(replay.id).lease_epoch == 3


def test_a_checkpoint_counts_as_progress_only_when_it_advances(
    store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    claim_and_crash(store)
    claim = claim_and_crash(store)
    assert store.begin_delivery(claim.lease, OFFSETS)
    assert store.checkpoint(claim.lease, 100, Counts(), [])
    assert store.replay(replay.id).claims_without_progress == 2
    assert store.checkpoint(claim.lease, 101, Counts(1), [])
    assert store.replay(replay.id).claims_without_progress == 0
    claim = claim_and_crash(store)
    assert store.begin_delivery(claim.lease, OFFSETS)
    assert store.checkpoint(claim.lease, 101, Counts(1), [])
    assert claim_and_crash(store).replay.claims_without_progress == 2


@pytest.mark.parametrize("ending", ["release", "postpone", "pause"])
def test_a_released_claim_does_not_count_as_one_without_progress(
    store: Store, webhook: Webhook, ending: str
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    claim_and_crash(store)
    claim = claimed_again(store)
    if ending == "release":
        assert store.release(claim.lease)
    elif ending == "postpone":
        assert store.postpone(claim.lease, "the log does not answer", 0)
    else:
        store.pause_replay(replay.id)
        store.resume_replay(replay.id)
    assert store.replay(replay.id).claims_without_progress == 0
    assert claimed_again(store).replay.claims_without_progress == 1


def test_failures_can_be_retried_after_the_replay_has_ended(store: Store, claimed: Claim) -> None:
    retry = NewReplay(claimed.webhook.id, WINDOW, retry_of=claimed.replay.id)
    assert store.begin_delivery(claimed.lease, OFFSETS)
    with pytest.raises(ReplayNotOver, match="is ONGOING"):
        store.create_replay(retry)
    failures = [Failure(offset, "evt", 6, 500, "no") for offset in (180, 120, 150)]
    assert store.checkpoint(claimed.lease, 200, Counts(97, 0, 3), failures)
    assert store.complete(claimed.lease)
    replay, is_new = store.create_replay(retry)
    assert is_new
    assert replay.retry_of == claimed.replay.id
    assert store.failed_offsets(claimed.replay.id, -1, 2) == (120, 150)
    assert store.failed_offsets(claimed.replay.id, 150, 2) == (180,)
    assert store.failed_offsets(claimed.replay.id, 180, 2) == ()


def test_a_replay_without_failures_has_nothing_to_retry(store: Store, claimed: Claim) -> None:
    assert store.begin_delivery(claimed.lease, OFFSETS)
    assert store.complete(claimed.lease)
    with pytest.raises(NothingToRetry, match="has no failures"):
        store.create_replay(NewReplay(claimed.webhook.id, WINDOW, retry_of=claimed.replay.id))
    with pytest.raises(ReplayNotFound):
        store.create_replay(NewReplay(claimed.webhook.id, WINDOW, retry_of="rpl_none"))
    assert len(store.replays().items) == 1
