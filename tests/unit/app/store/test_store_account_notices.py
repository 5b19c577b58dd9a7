"""Notices of accounts: stored with the change that they report, and sent at least once."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update

from app.domain import account_notices as rules
from app.domain.account_notices import (
    KEPT_MS,
    AccountNotice,
    NewNoticeEndpoint,
    NoticeEndpoint,
    NoticeType,
)
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import NewReplay, NewWebhook, Webhook, WebhookStatus, Window
from app.store import NotFound, Store, account_notices
from app.store.errors import TooManyNoticeEndpoints
from app.store.notice_tables import account_notices as notice_table
from app.store.notice_tables import notice_endpoints
from app.webhooks.signing import new_secret

HOUR_S = 3_600
DISABLED, CANCELLED = NoticeType.WEBHOOK_DISABLED, NoticeType.REPLAY_CANCELLED


def new_endpoint(store: Store, *types: NoticeType, account_id: str = DEFAULT_ACCOUNT) -> Any:
    new = NewNoticeEndpoint(account_id, "https://example.com/n", "", new_secret(), types)
    return store.enable_notice_endpoint(store.create_notice_endpoint(new).id)


@pytest.fixture
def endpoint(store: Store) -> NoticeEndpoint:
    """An ENABLED endpoint of the webhook's account for all notices."""
    endpoint: NoticeEndpoint = new_endpoint(store)
    return endpoint


def notices(store: Store) -> Iterator[AccountNotice]:
    """Claim what is due."""
    while notice := store.claim_account_notice(HOUR_S, []):
        yield notice


def documents(store: Store) -> list[Any]:
    return [json.loads(notice.body) for notice in notices(store)]


def move_due_times(store: Store, by_ms: int) -> None:
    earlier = update(notice_table).values(due_ms=notice_table.c.due_ms - by_ms)
    store.database.write(lambda connection: connection.execute(earlier))


def test_a_disabled_webhook_is_a_notice_with_its_reason(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.enable_webhook(webhook.id, webhook.url)
    store.disable_webhook(webhook.id, "answered 410")
    (notice,) = notices(store)
    assert (notice.endpoint, notice.attempt) == (endpoint, 1)
    document = json.loads(notice.body)
    assert document["type"] == "webhook.disabled"
    assert document["data"] == {
        "accountId": webhook.account_id,
        "webhookId": webhook.id,
        "failingSince": None,
        "reason": "answered 410",
    }


def test_a_webhook_that_is_disabled_already_is_no_notice(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "first")
    store.disable_webhook(webhook.id, "second")
    store.disable_webhook(webhook.id, "third", at_url="https://example.com/other")
    assert [each["data"]["reason"] for each in documents(store)] == ["first"]


def test_a_change_that_is_rolled_back_is_no_notice(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    with pytest.raises(NotFound):
        store.disable_webhook(webhook.id, "no", of_account="acc_other")
    assert documents(store) == []


def test_endpoints_get_the_types_that_they_selected(store: Store, webhook: Webhook) -> None:
    every = new_endpoint(store)
    replays = new_endpoint(store, CANCELLED, NoticeType.REPLAY_FAILED)
    store.disable_webhook(webhook.id, "by hand")
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
    store.cancel_replay(replay.id)
    assert store.claim_notice(HOUR_S) is None  # the webhook itself gets none: it is disabled
    found = [(each.endpoint.id, json.loads(each.body)["type"]) for each in notices(store)]
    assert sorted(found) == sorted(
        [(every.id, DISABLED), (every.id, CANCELLED), (replays.id, CANCELLED)]
    )


def test_endpoints_of_others_and_unverified_ones_get_nothing(
    store: Store, webhook: Webhook
) -> None:
    other = store.create_account("other")
    new_endpoint(store, account_id=other.id)
    pending = NewNoticeEndpoint(webhook.account_id, "https://example.com/n", "", new_secret())
    store.create_notice_endpoint(pending)
    store.disable_webhook(webhook.id, "by hand")
    assert documents(store) == []


def test_the_end_of_a_replay_is_one_notice_with_its_counts(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
    store.cancel_replay(replay.id)
    # Retries of the webhook's own notice store no second one.
    for _ in range(3):
        store.claim_notice(0)
    (document,) = documents(store)
    assert document["type"] == "replay.cancelled"
    data = document["data"]
    assert (data["replayId"], data["accountId"]) == (replay.id, webhook.account_id)
    assert data["counts"] == {"delivered": 0, "duplicates": 0, "failed": 0}
    assert data["reason"] == "request"


def test_a_notice_without_a_result_is_claimed_again_with_its_id(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "by hand")
    claims = [store.claim_account_notice(0, []) for _ in range(3)]
    assert [claim and claim.attempt for claim in claims] == [1, 2, 3]
    assert len({claim.id for claim in claims if claim}) == 1


def test_a_delivered_notice_is_deleted_and_its_time_is_kept(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "by hand")
    (notice,) = notices(store)
    store.finish_account_notice(notice)
    move_due_times(store, HOUR_S * 1_000)
    assert documents(store) == []
    found = store.notice_endpoint(endpoint.id)
    assert found.delivered_ms is not None
    assert (found.failed_ms, found.failure) == (None, None)


def test_a_failed_notice_is_retried_then_given_up(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "by hand")
    (first,) = notices(store)
    store.finish_account_notice(first, "answered 503", retry_in_s=HOUR_S)
    assert documents(store) == []
    found = store.notice_endpoint(endpoint.id)
    assert (found.delivered_ms, found.failure) == (None, "answered 503")
    move_due_times(store, HOUR_S * 1_000)
    (second,) = notices(store)
    assert (second.id, second.body, second.attempt) == (first.id, first.body, 2)
    # A process that was suspended in the first attempt changes nothing.
    store.finish_account_notice(first)
    assert store.notice_endpoint(endpoint.id).delivered_ms is None
    store.finish_account_notice(second, "x" * 5_000)
    move_due_times(store, HOUR_S * 1_000)
    assert documents(store) == []


def test_an_endpoint_that_is_busy_delays_no_other(store: Store, webhook: Webhook) -> None:
    one, two = new_endpoint(store), new_endpoint(store)
    store.disable_webhook(webhook.id, "by hand")
    busy = store.claim_account_notice(0, [])
    assert busy is not None
    other = store.claim_account_notice(HOUR_S, [busy.endpoint.id])
    assert other is not None
    assert {busy.endpoint.id, other.endpoint.id} == {one.id, two.id}
    # The same event has the same id everywhere.
    assert (busy.id, busy.body) == (other.id, other.body)
    assert store.claim_account_notice(HOUR_S, [one.id, two.id]) is None


def test_an_account_that_is_busy_delays_no_other(store: Store, webhook: Webhook) -> None:
    new_endpoint(store), new_endpoint(store)
    account = store.create_account("other")
    other = new_endpoint(store, account_id=account.id)
    new = NewWebhook("https://example.com/", "", new_secret(), account.id)
    store.disable_webhook(webhook.id, "by hand")
    store.disable_webhook(store.create_webhook(new).id, "by hand")
    claimed = store.claim_account_notice(HOUR_S, [], [webhook.account_id])
    assert claimed is not None
    assert claimed.endpoint.id == other.id
    assert store.claim_account_notice(HOUR_S, [], [webhook.account_id]) is None
    assert len(documents(store)) == 2


def test_an_unreadable_secret_delays_no_other_endpoint(
    store: Store, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable, other = new_endpoint(store), new_endpoint(store)
    for _ in range(2):
        store.enable_webhook(webhook.id, webhook.url)
        store.disable_webhook(webhook.id, "by hand")
    store_secret(store, unreadable, "v1:00000000:AAAA")
    assert [notice.endpoint.id for notice in notices(store)] == [other.id] * 2
    logged = [vars(each) for each in caplog.records if each.msg == "notice-secret-unreadable"]
    assert {each["endpoint"] for each in logged} == {unreadable.id}
    # Its notices wait for the key.
    store_secret(store, unreadable, unreadable.secret)
    move_due_times(store, HOUR_S * 1_000)
    claimed = [notice for notice in notices(store) if notice.endpoint.id == unreadable.id]
    assert [notice.attempt for notice in claimed] == [1, 1]


def store_secret(store: Store, endpoint: NoticeEndpoint, secret: str) -> None:
    changed = update(notice_endpoints).where(notice_endpoints.c.id == endpoint.id)
    store.database.write(lambda connection: connection.execute(changed.values(secret=secret)))


def test_a_disabled_or_deleted_endpoint_gets_nothing_more(store: Store, webhook: Webhook) -> None:
    gone, deleted = new_endpoint(store), new_endpoint(store)
    store.disable_webhook(webhook.id, "by hand")
    store.disable_notice_endpoint(gone.id, "answered 410")
    store.delete_notice_endpoint(deleted.id)
    assert documents(store) == []
    found = store.notice_endpoint(gone.id)
    assert (found.status, found.status_reason) == (WebhookStatus.DISABLED, "answered 410")
    assert store.notice_endpoints().items == (found,)


def test_notices_of_an_endpoint_that_was_deleted_meanwhile_are_dropped(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "by hand")
    orphan = update(notice_table).values(endpoint_id="ne_deleted")
    store.database.write(lambda connection: connection.execute(orphan))
    assert documents(store) == []
    store.enable_notice_endpoint(endpoint.id)
    assert documents(store) == []


def test_an_endpoint_that_accepts_nothing_has_a_limit(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_notices, "PENDING_PER_ENDPOINT_MAX", 2)
    for number in range(4):
        store.disable_webhook(webhook.id, str(number))
        store.enable_webhook(webhook.id, webhook.url)
    reasons = [each["data"]["reason"] for each in documents(store)]
    assert sorted(reasons) == ["0", "1"]


def test_stale_notices_are_deleted(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "by hand")
    assert store.delete_stale_account_notices() == 0
    move_due_times(store, KEPT_MS + HOUR_S * 1_000)
    assert store.delete_stale_account_notices() == 1
    assert documents(store) == []


def test_each_notice_is_claimed_once(store: Store, webhook: Webhook) -> None:
    endpoints = {new_endpoint(store).id for _ in range(8)}
    store.disable_webhook(webhook.id, "by hand")
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: store.claim_account_notice(HOUR_S, []), range(8)))
    # One may find only rows that others are claiming.
    claimed = [claim for claim in claims if claim] + list(notices(store))
    assert sorted(claim.endpoint.id for claim in claimed) == sorted(endpoints)
    assert {claim.attempt for claim in claimed} == {1}


def test_endpoints_of_an_account_are_limited(store: Store) -> None:
    for _ in range(rules.ENDPOINTS_PER_ACCOUNT_MAX):
        endpoint = new_endpoint(store)
    with pytest.raises(TooManyNoticeEndpoints, match="has 10 notice endpoints"):
        new_endpoint(store)
    store.delete_notice_endpoint(endpoint.id)
    new_endpoint(store)


def test_endpoints_are_listed_newest_first_by_account(store: Store) -> None:
    other = store.create_account("other")
    mine = [new_endpoint(store) for _ in range(3)]
    new_endpoint(store, account_id=other.id)
    first = store.notice_endpoints(limit=2, of_account=DEFAULT_ACCOUNT)
    rest = store.notice_endpoints(first.next_cursor, 2, of_account=DEFAULT_ACCOUNT)
    listed = [*first.items, *rest.items]
    assert {each.id for each in listed} == {each.id for each in mine}
    assert [each.created_ms for each in listed] == sorted(
        (each.created_ms for each in mine), reverse=True
    )
    assert len(store.notice_endpoints().items) == 4
    for action in (store.notice_endpoint, store.delete_notice_endpoint):
        with pytest.raises(NotFound):
            action(mine[0].id, of_account=other.id)


def test_a_new_url_keeps_the_notices_if_its_receiver_was_verified(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.disable_webhook(webhook.id, "by hand")
    moved = store.update_notice_endpoint(endpoint.id, url="https://example.com/new")
    assert (moved.url, moved.status) == ("https://example.com/new", WebhookStatus.ENABLED)
    (notice,) = notices(store)
    assert notice.endpoint.url == moved.url
    refused = store.update_notice_endpoint(
        endpoint.id, url="https://example.com/other", refusal="HTTP 401"
    )
    assert (refused.status, refused.status_reason) == (WebhookStatus.PENDING, "HTTP 401")
    assert refused.validated_ms is None


def test_a_verification_of_a_former_url_changes_nothing(
    store: Store, endpoint: NoticeEndpoint
) -> None:
    moved = store.update_notice_endpoint(
        endpoint.id, url="https://example.com/new", refusal="HTTP 401"
    )
    assert store.enable_notice_endpoint(endpoint.id, endpoint.url) == moved
    assert store.refuse_notice_endpoint(endpoint.id, endpoint.url, "late") == moved
    assert store.disable_notice_endpoint(endpoint.id, "410", at_url=endpoint.url) == moved
    enabled = store.enable_notice_endpoint(endpoint.id, moved.url)
    assert enabled.status is WebhookStatus.ENABLED


def test_both_secrets_sign_until_the_end_of_the_grace_period(
    store: Store, endpoint: NoticeEndpoint
) -> None:
    second = new_secret()
    rotated = store.rotate_notice_secret(endpoint.id, second, HOUR_S * 1_000)
    until_ms = rotated.previous_secret_until_ms
    assert until_ms is not None
    assert rotated.secrets_at(until_ms - 1) == (second, endpoint.secret)
    assert rotated.secrets_at(until_ms) == (second,)
    # A repeated request must not lose the previous secret.
    assert store.rotate_notice_secret(endpoint.id, second, 0) == rotated
    assert store.rotate_notice_secret(endpoint.id, new_secret(), 0).previous_secret is None
