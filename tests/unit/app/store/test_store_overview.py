"""Sums over the webhooks of an account, or of all."""

import pytest

from app.domain.live_backlog import LiveBacklog, WebhookHealth, health_of
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.options import ReplayReason
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store import Store
from app.store.overview import WebhookTotals
from app.webhooks.signing import new_secret

HOUR_MS = 3_600_000
START_MS = 400_000 * HOUR_MS
QUICK = (1, 0, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def others_webhook(store: Store) -> Webhook:
    """A webhook of another account."""
    account = store.create_account("other")
    new = NewWebhook("https://example.com/", "others", new_secret(), account.id)
    return store.create_webhook(new)


def add(store: Store, webhook: Webhook, *tallies: DeliveryTally, origin: str = "east") -> None:
    counted = [CountedTally(webhook.id, Span.EVENT, each) for each in tallies]
    store.add_tallies(counted, origin=origin)


def test_tallies_of_all_webhooks_and_data_centres_are_summed_per_time(
    store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    late_ms = START_MS + HOUR_MS
    early, late = DeliveryTally(START_MS, 1, 2, took=QUICK), DeliveryTally(late_ms, 4)
    add(store, webhook, DeliveryTally(START_MS - 1, 100), early, late)
    add(store, webhook, early, origin="west")
    add(store, others_webhook, early)
    store.add_tallies([CountedTally(webhook.id, Span.SETTLED, early)], origin="east")
    found = store.sum_tallies_by_start(Span.EVENT, START_MS)
    took = (3, *QUICK[1:])
    assert found == (DeliveryTally(START_MS, 3, 6, took=took), late)
    # Few of the tallies, which the database looks up by an index.
    assert store.sum_tallies_by_start(Span.EVENT, late_ms) == (late,)
    mine = store.sum_tallies_by_start(Span.EVENT, START_MS, of_account=webhook.account_id)
    assert [each.delivered for each in mine] == [2, 4]
    assert store.sum_tallies_by_start(Span.EVENT, START_MS, of_account="acc_none") == ()


def test_webhooks_that_missed_most_events_are_listed_first(
    store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    new = NewWebhook("https://example.com/", "", new_secret())
    perfect, deleted = store.create_webhook(new), store.create_webhook(new)
    add(store, webhook, DeliveryTally(START_MS, 9, 1, 1, 1), DeliveryTally(START_MS + 1, 1))
    add(store, others_webhook, DeliveryTally(START_MS, 0, 4), DeliveryTally(START_MS - 1, 0, 99))
    add(store, perfect, DeliveryTally(START_MS, 1_000))
    add(store, deleted, DeliveryTally(START_MS, 0, 1_000))
    store.delete_webhook(deleted.id)
    found = store.list_most_missed(Span.EVENT, START_MS, 10)
    assert [each for each, _ in found] == [others_webhook.id, webhook.id]
    assert [each for _, each in found] == [
        DeliveryTally(START_MS, 0, 4),
        DeliveryTally(START_MS, 10, 1, 1, 1),
    ]
    assert store.list_most_missed(Span.EVENT, START_MS, 1) == found[:1]
    mine = store.list_most_missed(Span.EVENT, START_MS, 10, of_account=webhook.account_id)
    assert mine == found[1:]
    assert store.list_most_missed(Span.SETTLED, START_MS, 10) == ()
    assert store.find_webhooks([webhook.id, deleted.id, "wh_none"]) == {webhook.id: webhook}


def backlog(*, is_recovering: bool) -> LiveBacklog:
    return LiveBacklog(5, 2, is_recovering, 503, "HTTP 503", 1, 2)


def test_webhooks_are_counted_by_their_health(store: Store, others_webhook: Webhook) -> None:
    def enabled() -> Webhook:
        made = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        return store.enable_webhook(made.id, made.url)

    healthy, failing, retrying, mixed, recovering, replayed, disabled = (
        enabled() for _ in range(7)
    )
    store.record_failing_since(failing.id, 1)
    store.record_failing_since(replayed.id, None)
    for origin, is_recovering in (("east", True), ("west", False)):
        backlogs = {mixed.id: backlog(is_recovering=is_recovering)}
        store.record_live_backlogs(backlogs, origin=origin)
    store.record_live_backlogs({retrying.id: backlog(is_recovering=False)}, origin="east")
    store.record_live_backlogs({recovering.id: backlog(is_recovering=True)}, origin="east")
    store.create_replay(NewReplay(replayed.id, Window(0, 1), reason=ReplayReason.RECOVERY))
    store.create_replay(NewReplay(healthy.id, Window(0, 1)))
    store.disable_webhook(disabled.id, "not needed")
    store.delete_webhook(enabled().id)
    expected = WebhookTotals(
        healthy=1, failing=3, recovering=2, pending=1, disabled=1, waiting_events=20
    )
    assert store.count_webhooks_by_health() == expected
    assert store.count_webhooks_by_health(of_account=others_webhook.account_id) == WebhookTotals(
        pending=1
    )
    ids = [each.id for each in (healthy, failing, retrying, mixed, recovering, replayed)]
    backlogs_of, active = store.live_backlogs(ids), store.active_replays_of(ids)
    shown = [
        health_of(store.webhook(each), backlogs_of.get(each), active.get(each)) for each in ids
    ]
    assert shown == [WebhookHealth.HEALTHY, *[WebhookHealth.FAILING] * 3, *["recovering"] * 2]
