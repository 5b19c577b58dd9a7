"""Notices of ended replays: one worker claims each, until it is delivered."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from app.domain.account_notices import NewNoticeEndpoint
from app.domain.model import (
    Claim,
    Counts,
    NewReplay,
    NewWebhook,
    OffsetRange,
    ReplayNotice,
    Webhook,
    Window,
)
from app.domain.options import NoticeStyle, ReplayOptions
from app.domain.states import ReplayState
from app.store import Store
from app.store.notices import DROPPED_PER_CLAIM
from app.store.tables import replays, webhooks
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import until

WINDOW = Window(1_000, 2_000)
HOUR_S = 3_600
PAST = {"notice_due_ms": 0}


def enabled_webhook(store: Store) -> Webhook:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    return store.enable_webhook(webhook.id, webhook.url)


@pytest.fixture
def running(store: Store) -> Claim:
    """A claimed replay of an ENABLED webhook, with delivery begun."""
    store.create_replay(NewReplay(enabled_webhook(store).id, WINDOW, notice=NoticeStyle.TWITTER))
    claim = store.claim("one", HOUR_S)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(0, 0, 10))
    return claim


def due(store: Store, lease_s: float = HOUR_S) -> ReplayNotice:
    notice = store.claim_notice(lease_s)
    assert notice is not None
    return notice


def due_after_a_cancel(store: Store) -> ReplayNotice:
    """The notice of a replay with a worker, after that worker has stopped."""
    found: list[ReplayNotice] = []

    def is_due() -> bool:
        found.extend(notices(store))
        return bool(found)

    until(is_due, "the notice of the cancelled replay is due")
    (notice,) = found
    return notice


def notices(store: Store) -> Iterator[ReplayNotice]:
    while notice := store.claim_notice(HOUR_S):
        yield notice


@pytest.mark.parametrize("end", [ReplayState.COMPLETED, ReplayState.FAILED, ReplayState.CANCELLED])
def test_every_end_of_a_replay_is_notified_once(
    store: Store, running: Claim, end: ReplayState
) -> None:
    assert store.claim_notice(HOUR_S) is None
    ends: dict[ReplayState, Callable[[], object]] = {
        ReplayState.COMPLETED: lambda: store.complete(running.lease),
        ReplayState.FAILED: lambda: store.fail(running.lease, "broken"),
        ReplayState.CANCELLED: lambda: store.cancel_replay(running.replay.id),
    }
    ends[end]()
    notice = due_after_a_cancel(store) if end is ReplayState.CANCELLED else due(store)
    assert (notice.replay, notice.webhook) == (store.replay(running.replay.id), running.webhook)
    assert (notice.replay.state, notice.replay.notice) == (end, NoticeStyle.TWITTER)
    assert notice.attempt == 1
    assert store.claim_notice(HOUR_S) is None
    store.finish_notice_attempt(notice)
    assert store.claim_notice(HOUR_S) is None


def test_a_pause_is_not_notified(store: Store, running: Claim) -> None:
    store.pause_replay(running.replay.id)
    assert store.claim_notice(HOUR_S) is None


def test_the_last_checkpoint_after_a_cancellation_is_not_notified(
    store: Store, running: Claim
) -> None:
    store.cancel_replay(running.replay.id)
    store.finish_notice_attempt(due_after_a_cancel(store))
    assert store.checkpoint(running.lease, 5, running.replay.counts, [])
    assert store.claim_notice(HOUR_S) is None


def test_a_cancellation_is_notified_after_its_worker_has_stopped(
    store: Store, running: Claim
) -> None:
    store.cancel_replay(running.replay.id)
    assert store.claim_notice(HOUR_S) is None
    assert store.checkpoint(running.lease, 5, Counts(3, 1, 0), [])
    assert due_after_a_cancel(store).replay.counts == Counts(3, 1, 0)


def test_a_cancellation_without_a_worker_is_notified_at_once(store: Store) -> None:
    replay, _ = store.create_replay(NewReplay(enabled_webhook(store).id, WINDOW))
    store.cancel_replay(replay.id)
    assert due(store).replay.id == replay.id


def test_a_notice_without_a_result_is_claimed_as_the_next_attempt(
    store: Store, running: Claim
) -> None:
    store.complete(running.lease)
    assert [due(store, lease_s=0).attempt for _ in range(3)] == [1, 2, 3]


def test_a_failed_notice_is_retried_or_given_up(store: Store, running: Claim) -> None:
    store.complete(running.lease)
    first = due(store)
    store.finish_notice_attempt(first, HOUR_S)
    assert store.claim_notice(HOUR_S) is None
    store.finish_notice_attempt(first, 0)
    second = due(store)
    assert second.attempt == 2
    store.finish_notice_attempt(second)
    assert store.claim_notice(HOUR_S) is None


def test_a_late_result_of_an_earlier_attempt_changes_nothing(store: Store, running: Claim) -> None:
    store.complete(running.lease)
    first, second = due(store, lease_s=0), due(store)
    assert second.attempt == 2
    store.finish_notice_attempt(first)
    store.finish_notice_attempt(first, HOUR_S)
    store.finish_notice_attempt(second, 0)
    assert due(store).attempt == 3


def test_a_late_result_of_an_earlier_failure_changes_nothing(store: Store, running: Claim) -> None:
    store.fail(running.lease, "broken")
    first = due(store)
    store.resume_replay(running.replay.id, actor="key_1")
    again = store.claim("two", HOUR_S)
    assert again is not None
    store.fail(again.lease, "broken again")
    second = due(store, lease_s=0)
    assert (first.attempt, second.attempt) == (1, 1)
    store.finish_notice_attempt(first)
    assert due(store).attempt == 2


def test_notices_are_claimed_in_the_order_of_the_ends(store: Store) -> None:
    ids = []
    for _ in range(4):
        replay, _ = store.create_replay(NewReplay(enabled_webhook(store).id, WINDOW))
        cancelled = store.cancel_replay(replay.id)
        ids.append((cancelled.finished_ms, replay.id))
    claimed = [(notice.replay.finished_ms, notice.replay.id) for notice in notices(store)]
    assert sorted(claimed) == sorted(ids)
    assert [at for at, _ in claimed] == sorted(at for at, _ in ids if at is not None)


def test_a_deleted_webhook_gets_no_notice(store: Store, running: Claim) -> None:
    store.delete_webhook(running.webhook.id)
    assert store.replay(running.replay.id).state is ReplayState.CANCELLED
    assert store.claim_notice(HOUR_S) is None


def test_a_webhook_that_is_not_enabled_gets_no_notice(store: Store, running: Claim) -> None:
    store.disable_webhook(running.webhook.id, "answered 410")
    store.complete(running.lease)
    assert store.claim_notice(HOUR_S) is None
    # Not even later: by then it is no news.
    store.enable_webhook(running.webhook.id, running.webhook.url)
    assert store.claim_notice(HOUR_S) is None


def test_a_target_url_of_the_replay_gets_a_notice_for_a_disabled_webhook(store: Store) -> None:
    webhook = enabled_webhook(store)
    options = ReplayOptions(target_url="https://example.com/elsewhere")
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, options))
    store.disable_webhook(webhook.id, "answered 410")
    store.cancel_replay(replay.id)
    assert due(store).replay.options.target_url == "https://example.com/elsewhere"


def test_notices_without_a_receiver_do_not_block_others(store: Store) -> None:
    for _ in range(DROPPED_PER_CLAIM // 10):
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        store.create_replay(NewReplay(webhook.id, WINDOW))
        store.delete_webhook(webhook.id)
    replay, _ = store.create_replay(NewReplay(enabled_webhook(store).id, WINDOW))
    store.cancel_replay(replay.id)
    assert [notice.replay.id for notice in notices(store)] == [replay.id]


def test_an_unreadable_secret_delays_no_other_notice(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable, other = enabled_webhook(store), enabled_webhook(store)
    new = NewNoticeEndpoint(unreadable.account_id, "https://example.com/n", "", new_secret())
    store.enable_notice_endpoint(store.create_notice_endpoint(new).id)
    for webhook in (unreadable, other):
        replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
        store.cancel_replay(replay.id)
    store_secret(store, unreadable, "v1:00000000:AAAA")
    assert [notice.webhook.id for notice in notices(store)] == [other.id]
    (logged,) = [vars(each) for each in caplog.records if each.msg == "notice-secret-unreadable"]
    assert logged["webhook"] == unreadable.id
    # It waits for the key, and the account was notified of both ends once.
    store_secret(store, unreadable, unreadable.secret)
    store.database.write(lambda connection: connection.execute(update(replays).values(PAST)))
    assert {notice.webhook.id for notice in notices(store)} == {unreadable.id, other.id}
    claimed = [store.claim_account_notice(HOUR_S, []) for _ in range(3)]
    assert [notice is None for notice in claimed] == [False, False, True]


def store_secret(store: Store, webhook: Webhook, secret: str) -> None:
    changed = update(webhooks).where(webhooks.c.id == webhook.id).values(secret=secret)
    store.database.write(lambda connection: connection.execute(changed))


def test_one_of_many_workers_claims_a_notice(store: Store, running: Claim) -> None:
    store.complete(running.lease)
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: store.claim_notice(HOUR_S), range(8)))
    assert [notice.attempt for notice in claims if notice] == [1]


def test_many_workers_claim_each_notice_once(store: Store) -> None:
    ids = set()
    for _ in range(30):
        replay, _ = store.create_replay(NewReplay(enabled_webhook(store).id, WINDOW))
        store.cancel_replay(replay.id)
        ids.add(replay.id)

    def claim_and_finish(_: int) -> list[str]:
        claimed: list[str] = []
        # None may also mean that others are just looking at all that is due.
        while len(claimed) < 30 and (notice := store.claim_notice(HOUR_S)):
            store.finish_notice_attempt(notice)
            claimed.append(notice.replay.id)
        return claimed

    with ThreadPoolExecutor(4) as threads:
        claimed = [
            replay_id for each in threads.map(claim_and_finish, range(4)) for replay_id in each
        ]
    claimed += [notice.replay.id for notice in notices(store)]
    assert sorted(claimed) == sorted(ids)
