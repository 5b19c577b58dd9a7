"""Scheduled retries among the resends: one after the other, limited, and taken over by replays."""

import pytest

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.handovers import LiveHandover
from app.domain.hours import HOUR_MS
from app.domain.model import NewWebhook, OffsetRange, Webhook, Window
from app.domain.resends import CONCURRENT_MAX, NewResend, Resend, ResendClaim, ResendResult
from app.domain.scheduled_retries import NewScheduledRetry, RetryProgress, WaitingRetries
from app.domain.tallies import Span
from app.store import Store
from app.store import scheduled_retries as table
from app.webhooks.signing import new_secret

EVENT_MS = 500 * HOUR_MS
HISTORY_MS = 48 * HOUR_MS
LEASE_S = 3_600.0
FAILED = ResendResult(DeliveryStatus.FAILED, 31.25, 500, "HTTP 500")


def place(offset: int) -> DeliveryPlace:
    return DeliveryPlace("here", 3, offset)


def retry(webhook: Webhook, offset: int, pause_s: float = 0.0) -> NewScheduledRetry:
    return NewScheduledRetry(
        webhook.id, place(offset), f"evt_{offset}", "a.b", EVENT_MS, pause_s, 4
    )


def claims(store: Store, lease_s: float = LEASE_S) -> list[ResendClaim]:
    return store.claim_resends("worker-1", lease_s, "here", CONCURRENT_MAX, ())


def handover(webhook: Webhook, *event_types: str) -> LiveHandover:
    window = Window(EVENT_MS, EVENT_MS + 1)
    return LiveHandover(
        "rpl_1", webhook.id, OffsetRange(3, 0, 10), window, event_types, EVENT_MS + 5_000
    )


def take_over(store: Store, webhook: Webhook, *event_types: str) -> int:
    taken = handover(webhook, *event_types)
    return store.take_over_retries(taken, HISTORY_MS, origin="here")


def waiting(store: Store, webhook: Webhook) -> dict[DeliveryPlace, RetryProgress]:
    found = store.retry_progress(webhook.id)
    return {where: each for where, each in found.items() if each.is_pending}


def resends_at(store: Store, webhook: Webhook, offset: int) -> tuple[Resend, ...]:
    return store.resends(webhook.id, place(offset))


def test_each_failed_attempt_is_followed_by_the_next_one(store: Store, webhook: Webhook) -> None:
    assert store.add_scheduled_retries([retry(webhook, 7)]) == (True,)
    (first,) = claims(store)
    assert (first.place, first.retry) == (place(7), (0, EVENT_MS, 4, "evt_7", "a.b", ()))
    assert store.retry_later(first, FAILED, 0.0)
    assert not store.retry_later(first, FAILED, 0.0)
    (second,) = claims(store)
    assert (second.place, second.retry) == (place(7), (1, EVENT_MS, 5, "evt_7", "a.b", ()))
    assert store.finish_resend(second, ResendResult(DeliveryStatus.SUCCEEDED, 1.0, 204))
    found = resends_at(store, webhook, 7)
    assert [each.status for each in found] == [DeliveryStatus.FAILED, DeliveryStatus.SUCCEEDED]
    assert {each.event_id for each in found} == {"evt_7"}
    assert claims(store) == []
    assert waiting(store, webhook) == {}
    assert store.resent_offsets(webhook.id, OffsetRange(3, 0, 10), origin="here") == {7}


def test_a_retry_is_not_due_before_its_time(store: Store, webhook: Webhook) -> None:
    store.add_scheduled_retries([retry(webhook, 7, pause_s=LEASE_S)])
    assert not store.is_any_resend_due("here")
    assert claims(store) == []
    assert list(waiting(store, webhook)) == [place(7)]
    assert store.pending_resends(webhook.id) == frozenset()
    (pending,) = resends_at(store, webhook, 7)
    assert pending.due_ms == waiting(store, webhook)[place(7)].next_ms


def test_an_event_that_waits_gets_no_second_retry(store: Store, webhook: Webhook) -> None:
    assert store.add_scheduled_retries([retry(webhook, 7), retry(webhook, 7)]) == (True, True)
    assert store.add_scheduled_retries([retry(webhook, 7)]) == (True,)
    assert len(resends_at(store, webhook, 7)) == 1


def test_a_webhook_has_a_limited_number_of_waiting_retries(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "WAITING_MAX", 2)
    new = [retry(webhook, offset) for offset in (7, 8, 9, 8)]
    assert store.add_scheduled_retries(new) == (True, True, False, True)


def test_copies_of_an_event_wait_with_it(store: Store, webhook: Webhook) -> None:
    offsets = OffsetRange(3, 8, 12)
    new = retry(webhook, 7, pause_s=LEASE_S)
    store.add_scheduled_retries([new._replace(copies=(9,))])
    # A copy that is read while the row is written.
    store.add_scheduled_retries([new._replace(copies=(9, 11))])
    assert set(waiting(store, webhook)) == {place(7), place(9), place(11)}
    assert len(set(waiting(store, webhook).values())) == 1
    assert store.recently_scheduled("here", [3], HOUR_MS) == {(3, 7), (3, 9), (3, 11)}
    # A requested resend of a copy makes the retry of the event due.
    (found,) = store.create_resends(webhook.id, [NewResend(place(11), "evt_7")])
    (first,) = claims(store)
    assert (found.id, found.place) == (first.resend_id, place(11))
    assert store.retry_later(first, FAILED, 0.0)
    (second,) = claims(store)
    assert second.place == place(7)
    assert store.resent_offsets(webhook.id, offsets, origin="here") == frozenset()
    assert store.finish_resend(second, ResendResult(DeliveryStatus.SUCCEEDED, 1.0, 204))
    assert store.resent_offsets(webhook.id, offsets, origin="here") == {9, 11}
    ended = store.retry_progress(webhook.id)
    assert ended[place(9)] == ended[place(7)]
    assert not ended[place(9)].is_pending
    assert [each.id for each in store.retries_of_copy(webhook.id, place(9))] == [
        first.resend_id,
        second.resend_id,
    ]
    assert store.retries_of_copy(webhook.id, place(10)) == ()


def test_a_requested_resend_makes_a_retry_due_at_once(store: Store, webhook: Webhook) -> None:
    store.add_scheduled_retries([retry(webhook, 7, pause_s=LEASE_S)])
    (found,) = store.create_resends(webhook.id, [NewResend(place(7), "evt_7")])
    (claimed,) = claims(store)
    assert claimed.resend_id == found.id
    # While a worker sends it, its lease stays.
    store.create_resends(webhook.id, [NewResend(place(7), "evt_7")])
    assert claims(store) == []


def test_a_replay_takes_over_the_retries_of_its_events(store: Store, webhook: Webhook) -> None:
    store.add_scheduled_retries([retry(webhook, 7), retry(webhook, 12)])
    assert take_over(store, webhook, "other") == 0
    assert len(waiting(store, webhook)) == 2
    assert take_over(store, webhook, "a.b") == 0
    assert list(waiting(store, webhook)) == [place(12)]
    (ended,) = resends_at(store, webhook, 7)
    assert ended.result is not None
    assert (ended.status, ended.result.reason) == (
        DeliveryStatus.SKIPPED,
        "left to the replay rpl_1",
    )
    (tally,) = store.tallies(webhook.id, Span.EVENT, EVENT_MS)
    # Settled before the replay was created, so that it counts for what is missed.
    assert (tally.skipped, tally.missed_at_ms) == (1, EVENT_MS + 4_999)


def test_a_replay_waits_for_a_retry_that_a_worker_sends(store: Store, webhook: Webhook) -> None:
    store.add_scheduled_retries([retry(webhook, 7)])
    taken = handover(webhook)
    (claimed,) = claims(store)
    assert store.retries_of_handover(taken, origin="here") == []
    assert take_over(store, webhook) == 1
    store.retry_later(claimed, FAILED, 0.0)
    (found,) = store.retries_of_handover(taken, origin="here")
    assert (found.place, found.retry) == (place(7), (1, EVENT_MS, 5, "evt_7", "a.b", ()))
    assert store.retries_of_handover(taken, origin="elsewhere") == []
    assert take_over(store, webhook) == 0
    assert store.retries_of_handover(taken, origin="here") == []
    assert claims(store) == []


def test_a_replay_takes_over_the_retry_of_a_dead_worker(store: Store, webhook: Webhook) -> None:
    store.add_scheduled_retries([retry(webhook, 7)])
    (claimed,) = claims(store, lease_s=-1)
    assert take_over(store, webhook) == 0
    assert not store.retry_later(claimed, FAILED, 0.0)


def test_requested_resends_are_not_taken_over(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, [NewResend(place(7), "evt_7")])
    assert take_over(store, webhook) == 0
    assert len(claims(store)) == 1


def test_the_progress_of_retries_counts_all_attempts_and_ends_with_the_last_result(
    store: Store, webhook: Webhook
) -> None:
    store.add_scheduled_retries([retry(webhook, 7), retry(webhook, 8, pause_s=LEASE_S)])
    later_ms = resends_at(store, webhook, 8)[0].due_ms
    (first,) = claims(store)
    assert store.retry_progress(webhook.id) == {
        place(7): RetryProgress(4),  # a worker makes it
        place(8): RetryProgress(4, later_ms),
    }
    store.retry_later(first, FAILED, 0.0)
    (due_ms,) = (each.due_ms for each in resends_at(store, webhook, 7) if each.result is None)
    assert store.retry_progress(webhook.id)[place(7)] == RetryProgress(5, due_ms)
    (second,) = claims(store)
    succeeded = ResendResult(DeliveryStatus.SUCCEEDED, 1.0, 204)
    store.finish_resend(second, succeeded)
    found = store.retry_progress(webhook.id)[place(7)]
    assert (found.attempts, found.next_ms, found.result) == (6, None, succeeded)
    assert found.ended_ms is not None
    # What a replay has taken over was no attempt.
    store.add_scheduled_retries([retry(webhook, 9)])
    take_over(store, webhook)
    assert store.retry_progress(webhook.id)[place(9)].attempts == 4


def test_waiting_retries_are_counted_by_webhook_and_for_all(store: Store, webhook: Webhook) -> None:
    other = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    store.add_scheduled_retries([retry(webhook, 7), retry(webhook, 8, pause_s=LEASE_S)])
    store.add_scheduled_retries([retry(other, 9)])
    store.create_resends(webhook.id, [NewResend(place(10), "evt_10")])
    due_ms = {offset: resends_at(store, webhook, offset)[0].due_ms for offset in (7, 8)}
    ids = [webhook.id, other.id, "wh_none"]
    assert store.waiting_retries(ids)[webhook.id] == WaitingRetries(2, due_ms[7])
    assert len(store.waiting_retries(ids)) == 2
    assert store.count_webhooks_by_health().retried_events == 3
    assert store.count_webhooks_by_health(of_account="acc_none").retried_events == 0
    assert len(claims(store)) == 3
    assert store.waiting_retries(ids) == {
        webhook.id: WaitingRetries(2, due_ms[8]),
        other.id: WaitingRetries(1, None),
    }
    store.delete_webhook(other.id)
    assert store.count_webhooks_by_health().retried_events == 2
