"""Which webhooks have events that are not delivered."""

import pytest

from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.live_backlog import LiveBacklog
from app.domain.model import NewWebhook, Webhook, Window
from app.domain.scheduled_retries import NewScheduledRetry
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store import Store
from app.store.undelivered import UndeliveredWebhooks
from app.webhooks.signing import new_secret
from tests.support.database.api_keys import issue_key

HOUR_MS = 3_600_000
START_MS = 400_000 * HOUR_MS
WINDOW = Window(START_MS + HOUR_MS // 2, START_MS + 2 * HOUR_MS)


@pytest.fixture
def webhooks(store: Store) -> list[Webhook]:
    key, _ = issue_key(store, "alice", Scope.DEVELOPER)
    new = NewWebhook("https://example.com/", "", new_secret(), key.account.id)
    return [store.create_webhook(new) for _ in range(3)]


def count(store: Store, webhook: Webhook, tally: DeliveryTally, origin: str = "here") -> None:
    store.add_tallies([CountedTally(webhook.id, Span.EVENT, tally)], origin=origin)


def found(store: Store, status: DeliveryStatus, limit: int = 9, **of: str) -> UndeliveredWebhooks:
    return store.undelivered_webhooks(status, WINDOW, limit, origin="here", **of)


def test_webhooks_with_most_failed_or_skipped_events_come_first(
    store: Store, webhook: Webhook, webhooks: list[Webhook]
) -> None:
    first, second, third = webhooks
    count(store, first, DeliveryTally(START_MS, delivered=9, failed=1))
    count(store, first, DeliveryTally(START_MS + HOUR_MS, failed=1, skipped=1))
    count(store, second, DeliveryTally(START_MS, failed=3, disabled=2))
    count(store, webhook, DeliveryTally(START_MS, failed=9))
    for outside_ms in (START_MS - HOUR_MS, START_MS + 2 * HOUR_MS):
        count(store, third, DeliveryTally(outside_ms, failed=99, skipped=99))
    count(store, third, DeliveryTally(START_MS, failed=99), origin="elsewhere")
    failed = found(store, DeliveryStatus.FAILED)
    assert failed == ((webhook.id, second.id, first.id), 3)
    assert found(store, DeliveryStatus.FAILED, 1) == ((webhook.id,), 3)
    account = first.account_id
    own = found(store, DeliveryStatus.FAILED, of_account=account)
    assert own == ((second.id, first.id), 2)
    assert found(store, DeliveryStatus.SKIPPED) == ((second.id, first.id), 2)
    store.delete_webhook(second.id)
    assert found(store, DeliveryStatus.FAILED, of_account=account) == ((first.id,), 1)


def test_pending_events_wait_for_a_live_or_a_scheduled_retry(
    store: Store, webhooks: list[Webhook]
) -> None:
    first, second, third = webhooks
    assert found(store, DeliveryStatus.PENDING) == ((), 0)
    backlog = LiveBacklog(2, 1, False, 503, "HTTP 503", START_MS, START_MS)
    store.record_live_backlogs({first.id: backlog, third.id: backlog}, origin="here")
    store.record_live_backlogs({third.id: None}, origin="here")
    store.record_live_backlogs({third.id: backlog}, origin="elsewhere")
    assert found(store, DeliveryStatus.PENDING) == ((first.id,), 1)
    retries = [
        NewScheduledRetry(
            webhook_id=second.id,
            place=DeliveryPlace("here", 3, offset),
            event_id=f"evt_{offset}",
            event_type="made",
            event_ms=START_MS,
            pause_s=60.0,
            attempts=1,
        )
        for offset in range(3)
    ]
    assert all(store.add_scheduled_retries(retries))
    assert found(store, DeliveryStatus.PENDING) == ((second.id, first.id), 2)
    own = found(store, DeliveryStatus.PENDING, of_account="acc_other")
    assert own == ((), 0)
