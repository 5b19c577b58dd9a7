"""Which changes of a webhook its account is notified of, and when."""

import json
import time
from typing import Any

import pytest
from sqlalchemy import select, update

from app.api.notice_events import NOTICES
from app.domain.account_notices import (
    OUTAGE_MS,
    SECRET_NOTICE_MS,
    NewNoticeEndpoint,
    NoticeType,
)
from app.domain.model import Webhook
from app.domain.windows import format_time, parse_time
from app.store import Store
from app.store.notice_tables import account_notices
from app.webhooks.signing import new_secret

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def endpoint(store: Store, webhook: Webhook) -> None:
    """An endpoint for all notices; the webhook is ENABLED."""
    store.enable_webhook(webhook.id, webhook.url)
    new = NewNoticeEndpoint(webhook.account_id, "https://example.com/n", "", new_secret())
    store.enable_notice_endpoint(store.create_notice_endpoint(new).id)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def due(store: Store) -> list[Any]:
    """Claim what is due; all bodies conform to the OpenAPI document."""
    found = []
    while notice := store.claim_account_notice(3_600, []):
        document = json.loads(notice.body)
        NOTICES[document["type"]][0].model_validate(document)
        found.append(document)
    return found


def types(store: Store) -> list[str]:
    return [document["type"] for document in due(store)]


def pending(store: Store) -> list[tuple[str, int]]:
    """The type and the due time of all notices that were never claimed."""
    query = select(account_notices.c.type, account_notices.c.due_ms)
    query = query.where(account_notices.c.attempts == 0)
    rows = store.database.read(lambda connection: connection.execute(query).all())
    return [(row.type, row.due_ms) for row in rows]


def test_a_long_outage_is_reported_at_its_start_and_end(store: Store, webhook: Webhook) -> None:
    since_ms = now_ms() - OUTAGE_MS
    store.record_failing_since(webhook.id, since_ms)
    (failing,) = due(store)
    assert failing["type"] == "webhook.failing"
    assert failing["data"] == {
        "accountId": webhook.account_id,
        "webhookId": webhook.id,
        "failingSince": format_time(since_ms),
    }
    store.record_failing_since(webhook.id, None)
    (recovered,) = due(store)
    assert (recovered["type"], recovered["data"]) == ("webhook.recovered", failing["data"])


def test_a_process_that_reports_an_outage_again_adds_no_notice(
    store: Store, webhook: Webhook
) -> None:
    since_ms = now_ms() - OUTAGE_MS
    for _ in range(3):
        store.record_failing_since(webhook.id, since_ms)
    assert types(store) == ["webhook.failing"]
    for _ in range(3):
        store.record_failing_since(webhook.id, None)
    assert types(store) == ["webhook.recovered"]


def test_a_process_that_sees_an_outage_later_keeps_its_start(
    store: Store, webhook: Webhook
) -> None:
    since_ms = now_ms() - OUTAGE_MS
    for each_ms in (since_ms, now_ms()):
        store.record_failing_since(webhook.id, each_ms)
        assert store.webhook(webhook.id).failing_since_ms == since_ms
    store.record_failing_since(webhook.id, None)
    assert sorted(types(store)) == ["webhook.failing", "webhook.recovered"]


def test_a_short_outage_is_not_reported(store: Store, webhook: Webhook) -> None:
    since_ms = now_ms()
    store.record_failing_since(webhook.id, since_ms)
    assert due(store) == []
    ((notice_type, due_ms),) = pending(store)
    assert notice_type == NoticeType.WEBHOOK_FAILING
    # Up to the difference of the clocks.
    assert abs(due_ms - since_ms - OUTAGE_MS) < HOUR_MS
    store.record_failing_since(webhook.id, None)
    assert pending(store) == []


def test_a_failing_webhook_that_is_disabled_recovers_when_it_is_enabled(
    store: Store, webhook: Webhook
) -> None:
    since_ms = now_ms() - OUTAGE_MS
    store.record_failing_since(webhook.id, since_ms)
    store.disable_webhook(webhook.id, "failed for too long")
    found = {document["type"]: document["data"] for document in due(store)}
    assert found.keys() == {"webhook.failing", "webhook.disabled"}
    assert found["webhook.disabled"]["failingSince"] == format_time(since_ms)
    store.enable_webhook(webhook.id, webhook.url)
    assert types(store) == ["webhook.recovered"]
    store.enable_webhook(webhook.id, webhook.url)
    assert types(store) == []


def test_a_new_url_and_a_deletion_end_an_outage_without_a_notice(
    store: Store, webhook: Webhook
) -> None:
    store.record_failing_since(webhook.id, now_ms())
    store.update_webhook(webhook.id, url="https://example.com/other")
    assert pending(store) == []
    store.record_failing_since(webhook.id, now_ms())
    store.delete_webhook(webhook.id)
    assert pending(store) == []
    store.record_failing_since(webhook.id, 1_000)
    assert pending(store) == []


def test_an_outage_that_disables_the_webhook_is_not_reported_afterwards(
    store: Store, webhook: Webhook
) -> None:
    store.record_failing_since(webhook.id, now_ms())
    store.disable_webhook(webhook.id, "answered 410")
    assert [notice_type for notice_type, _ in pending(store)] == [NoticeType.WEBHOOK_DISABLED]


def test_a_previous_secret_expires_with_a_new_url_too(store: Store, webhook: Webhook) -> None:
    store.rotate_secret(webhook.id, new_secret(), HOUR_MS)
    reported = pending(store)
    store.update_webhook(webhook.id, url="https://example.com/other")
    assert pending(store) == reported
    store.delete_webhook(webhook.id)
    assert pending(store) == []


def test_the_end_of_a_grace_period_is_reported_before(store: Store, webhook: Webhook) -> None:
    rotated = store.rotate_secret(webhook.id, new_secret(), 7 * SECRET_NOTICE_MS)
    until_ms = rotated.previous_secret_until_ms
    assert until_ms is not None
    ((notice_type, due_ms),) = pending(store)
    assert notice_type == NoticeType.SECRET_EXPIRING
    assert abs(until_ms - SECRET_NOTICE_MS - due_ms) < HOUR_MS
    # The second rotation drops the first previous secret.
    store.rotate_secret(webhook.id, new_secret(), 1_000)
    assert len(pending(store)) == 1
    passed = update(account_notices).values(due_ms=1)
    store.database.write(lambda connection: connection.execute(passed))
    (document,) = due(store)
    assert document["type"] == "secret.expiring"
    assert parse_time(document["data"]["expiresAt"]) < until_ms


def test_a_rotation_without_a_grace_period_is_not_reported(store: Store, webhook: Webhook) -> None:
    store.rotate_secret(webhook.id, new_secret(), HOUR_MS)
    assert len(pending(store)) == 1
    store.rotate_secret(webhook.id, new_secret(), 0)
    assert pending(store) == []
