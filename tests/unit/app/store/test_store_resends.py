"""The queue of resends, and their results."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import text

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.model import NewWebhook, OffsetRange, Webhook
from app.domain.resends import (
    CLAIMS_MAX,
    CONCURRENT_MAX,
    PENDING_MAX,
    PER_ACCOUNT_MAX,
    PER_WEBHOOK_MAX,
    NewResend,
    ResendClaim,
    ResendResult,
)
from app.store import Store, TooManyResends, WebhookNotFound

LEASE_S = 3_600.0


@pytest.fixture
def webhook(store: Store) -> Webhook:
    return a_webhook(store)


def a_webhook(store: Store, account: str | None = None) -> Webhook:
    new = NewWebhook("https://example.com/hook", "", "whsec_c2VjcmV0")
    if account is not None:
        new = replace(new, account_id=store.create_account(account).id)
    return store.create_webhook(new)


def new(*offsets: int, origin: str = "here") -> list[NewResend]:
    return [NewResend(DeliveryPlace(origin, 3, each), f"evt_{each}") for each in offsets]


def claim(
    store: Store,
    limit: int = CONCURRENT_MAX,
    lease_s: float = LEASE_S,
    in_flight: Sequence[ResendClaim] = (),
) -> list[ResendClaim]:
    return store.claim_resends("worker-1", lease_s, "here", limit, in_flight)


def test_a_resend_is_claimed_once_and_gets_its_result(store: Store, webhook: Webhook) -> None:
    (created,) = store.create_resends(webhook.id, new(7))
    assert (created.status, created.event_id) == (DeliveryStatus.PENDING, "evt_7")
    assert store.is_any_resend_due("here")
    (claimed,) = claim(store)
    assert not store.is_any_resend_due("here")
    assert claimed == ResendClaim(created.id, 1, webhook.id, webhook.account_id, created.place)
    assert claim(store) == []
    assert store.pending_resends(webhook.id) == {created.place}
    result = ResendResult(DeliveryStatus.FAILED, 31.25, 503, "HTTP 503", "ü" * 10_000)
    assert store.finish_resend(claimed, result)
    assert not store.finish_resend(claimed, result)
    assert store.pending_resends(webhook.id) == frozenset()
    (found,) = store.resends(webhook.id, created.place)
    assert found.result == result._replace(response="ü" * 4_000)
    assert (found.worker, found.finished_ms is not None) == ("worker-1", True)
    assert claim(store) == []


def test_a_resend_of_a_dead_worker_is_claimed_again(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(7))
    (first,) = claim(store, lease_s=-1)
    (second,) = claim(store)
    assert (first.claims, second.claims) == (1, 2)
    assert not store.finish_resend(first, ResendResult(DeliveryStatus.FAILED))
    assert store.finish_resend(second, ResendResult(DeliveryStatus.SUCCEEDED, 1.0, 204))
    (found,) = store.resends(webhook.id, first.place)
    assert found.status is DeliveryStatus.SUCCEEDED


def test_a_delivery_that_waits_is_not_resent_twice(store: Store, webhook: Webhook) -> None:
    first = store.create_resends(webhook.id, new(7, 7, 8))
    assert [each.place.offset for each in first] == [7, 8]
    again = store.create_resends(webhook.id, new(9, 8))
    assert again[1] == first[1]
    for each in claim(store, limit=2):
        store.finish_resend(each, ResendResult(DeliveryStatus.SUCCEEDED))
    (later,) = store.create_resends(webhook.id, new(7))
    assert later.id != first[0].id
    assert len(store.resends(webhook.id, later.place)) == 2


def test_a_webhook_gets_a_share_of_the_resends_in_flight(store: Store, webhook: Webhook) -> None:
    other = a_webhook(store)
    store.create_resends(webhook.id, new(*range(10)))
    store.create_resends(other.id, new(*range(10)))
    first = claim(store)
    counts = [each.webhook_id for each in first]
    assert counts.count(webhook.id) == counts.count(other.id) == PER_WEBHOOK_MAX
    busy = [each for each in first if each.webhook_id == webhook.id]
    assert {each.webhook_id for each in claim(store, in_flight=busy)} == {other.id}
    assert len(claim(store, limit=1)) == 1


def test_many_resends_of_a_webhook_do_not_hide_those_of_others(
    store: Store, webhook: Webhook
) -> None:
    store.create_resends(webhook.id, new(*range(300)))
    busy = claim(store)
    others = [a_webhook(store) for _ in range(2)]
    for each in others:
        store.create_resends(each.id, new(7))
    (first,) = claim(store, in_flight=busy, limit=1)
    assert first.webhook_id in {each.id for each in others}
    (second,) = claim(store, in_flight=[*busy, first])
    assert {first.webhook_id, second.webhook_id} == {each.id for each in others}


def test_an_account_gets_a_share_of_the_resends_in_flight(store: Store) -> None:
    for _ in range(PER_ACCOUNT_MAX):
        store.create_resends(a_webhook(store).id, new(*range(10)))
    busy = claim(store)
    assert len(busy) == PER_ACCOUNT_MAX < CONCURRENT_MAX
    assert claim(store, in_flight=busy) == []
    other = a_webhook(store, "other")
    store.create_resends(other.id, new(7, 8))
    room = CONCURRENT_MAX - len(busy)
    rest = claim(store, limit=room, in_flight=busy)
    assert [each.account_id for each in rest] == PER_WEBHOOK_MAX * [other.account_id]


def test_a_claim_that_is_released_does_not_count(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(7))
    for _ in range(CLAIMS_MAX + 1):
        (claimed,) = claim(store)
        assert claimed.claims == 1
        assert store.release_resend(claimed, 0)
    (first,) = claim(store, lease_s=-1)
    (second,) = claim(store)
    assert not store.release_resend(first, 0)
    assert second.claims == 2
    assert store.finish_resend(second, ResendResult(DeliveryStatus.SUCCEEDED))
    assert not store.release_resend(second, 0)


def test_a_released_resend_is_due_after_a_pause(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(7))
    (claimed,) = claim(store)
    assert store.release_resend(claimed, LEASE_S)
    assert not store.is_any_resend_due("here")
    assert claim(store) == []


def test_another_data_centre_claims_its_own(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(7, origin="elsewhere"))
    assert claim(store) == []
    assert len(store.claim_resends("worker-2", LEASE_S, "elsewhere", 8, ())) == 1


def test_successful_resends_are_found_by_webhook_and_offset(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(7, 8))
    failed, succeeded = claim(store)
    store.finish_resend(failed, ResendResult(DeliveryStatus.FAILED))
    assert store.resent_places(webhook.id) == frozenset()
    store.finish_resend(succeeded, ResendResult(DeliveryStatus.SUCCEEDED))
    assert store.resent_places(webhook.id) == {succeeded.place}
    assert store.resent_places(a_webhook(store).id) == frozenset()
    offset = succeeded.place.offset
    for offsets, origin, found in (
        (OffsetRange(3, offset, offset + 1), "here", {offset}),
        (OffsetRange(3, offset + 1, offset + 9), "here", set()),
        (OffsetRange(3, 0, offset), "here", set()),
        (OffsetRange(2, 0, 100), "here", set()),
        (OffsetRange(3, 0, 100), "elsewhere", set()),
    ):
        assert store.resent_offsets(webhook.id, offsets, origin=origin) == found


def test_a_webhook_has_a_limited_number_of_waiting_resends(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(*range(PENDING_MAX - 1)))
    with pytest.raises(TooManyResends):
        store.create_resends(webhook.id, new(PENDING_MAX, PENDING_MAX + 1))
    store.create_resends(webhook.id, new(PENDING_MAX))
    with pytest.raises(WebhookNotFound):
        store.create_resends(webhook.id, new(1), of_account="acc_other")


def test_old_results_are_deleted(store: Store, webhook: Webhook) -> None:
    store.create_resends(webhook.id, new(7, 8))
    (done,) = claim(store, limit=1)
    store.finish_resend(done, ResendResult(DeliveryStatus.SUCCEEDED))
    assert store.delete_old_resends(3_600_000) == 0
    assert store.delete_old_resends(-1) == 1
    assert store.resends(webhook.id, done.place) == ()
    assert len(claim(store)) == 1


def test_an_index_has_the_latest_successful_resends(store: Store) -> None:
    query = text(
        "EXPLAIN QUERY PLAN SELECT record_offset FROM resends"
        " WHERE webhook_id = 'wh' AND status = 'succeeded' ORDER BY created_ms DESC"
    )
    if store.database.read(lambda db: db.dialect.name) == "sqlite":
        plan = store.database.read(lambda db: db.execute(query).one().detail)
        assert "USING INDEX ix_resends_webhook_id_status_created_ms" in plan
