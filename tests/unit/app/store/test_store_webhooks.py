import base64

import pytest

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import (
    Claim,
    NewReplay,
    NewWebhook,
    ReplayFilter,
    Webhook,
    WebhookStatus,
    Window,
)
from app.domain.states import ReplayState
from app.store import InvalidCursor, Store, WebhookNotFound
from app.webhooks.signing import new_secret


def test_a_webhook_is_stored_unchanged(store: Store) -> None:
    webhook = store.create_webhook(
        NewWebhook("https://example.com/a?b=1", "Grüße 🎉 'quoted'", new_secret())
    )
    assert webhook.id.startswith("wh_")
    assert (webhook.url, webhook.description) == ("https://example.com/a?b=1", "Grüße 🎉 'quoted'")
    assert store.webhook(webhook.id) == webhook


def test_a_secret_is_random_and_not_shown(store: Store) -> None:
    one = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    two = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    assert one.secret != two.secret
    assert len(base64.b64decode(one.secret.removeprefix("whsec_"))) == 32
    assert one.secret not in repr(one)


def test_an_update_changes_only_given_values(store: Store, webhook: Webhook) -> None:
    changed = store.update_webhook(webhook.id, url="https://example.com/new")
    assert (changed.url, changed.description) == ("https://example.com/new", "orders")
    changed = store.update_webhook(webhook.id, description="")
    assert (changed.url, changed.description) == ("https://example.com/new", "")
    assert store.update_webhook(webhook.id) == store.webhook(webhook.id)
    assert changed.secret == webhook.secret


# Ids are compared byte by byte, whatever the collation of the database.
@pytest.mark.parametrize("webhook_id", ["wh_none", "", "wh_ü", "WH_"])
def test_an_unknown_webhook_is_not_found(store: Store, webhook: Webhook, webhook_id: str) -> None:
    for ask in (store.webhook, store.delete_webhook, store.update_webhook):
        with pytest.raises(WebhookNotFound, match="does not exist"):
            ask(webhook_id)
    for other in (webhook.id.upper(), webhook.id + " "):
        for ask in (store.webhook, store.delete_webhook, store.update_webhook):
            with pytest.raises(WebhookNotFound):
                ask(other)
        with pytest.raises(WebhookNotFound):
            store.create_replay(NewReplay(other, Window(0, 1)))


def test_replays_of_a_deleted_webhook_can_be_read(store: Store, claimed: Claim) -> None:
    webhook_id = claimed.webhook.id
    store.delete_webhook(webhook_id)
    for ask in (store.webhook, store.delete_webhook, store.update_webhook):
        with pytest.raises(WebhookNotFound):
            ask(webhook_id)
    with pytest.raises(WebhookNotFound):
        store.create_replay(NewReplay(webhook_id, Window(1, 2)))
    assert store.webhooks().items == ()
    assert [replay.id for replay in store.replays(ReplayFilter(webhook_id=webhook_id)).items] == [
        claimed.replay.id
    ]


def test_deleting_a_webhook_cancels_its_active_replay(store: Store, claimed: Claim) -> None:
    store.delete_webhook(claimed.webhook.id)
    assert store.replay(claimed.replay.id).state is ReplayState.CANCELLED
    assert not store.heartbeat(claimed.lease, 60)
    assert store.claim("two", 60) is None


def test_replays_are_listed_with_the_names_of_their_webhooks(store: Store) -> None:
    url, other_account = "https://example.com/", store.create_account("other").id

    def webhook(description: str, account_id: str = DEFAULT_ACCOUNT) -> Webhook:
        made = store.create_webhook(NewWebhook(url, description, new_secret(), account_id))
        store.enable_webhook(made.id, url)
        store.create_replay(NewReplay(made.id, Window(0, 1)))
        return made

    named, unnamed, deleted, others = (
        webhook("billing"),
        webhook(""),
        webhook("old"),
        webhook("other", other_account),
    )
    store.delete_webhook(deleted.id)
    page, names = store.named_replays()
    assert page == store.replays()
    assert len(page.items) == 4
    assert names == {named.id: "billing", unnamed.id: url, others.id: "other"}
    page, names = store.named_replays(of_account=other_account)
    assert [replay.webhook_id for replay in page.items] == [others.id]
    assert names == {others.id: "other"}
    assert store.named_replays(ReplayFilter(webhook_id="wh_none"))[1] == {}


def test_webhooks_are_listed_newest_first_in_pages(store: Store) -> None:
    created = [
        store.create_webhook(NewWebhook(f"https://example.com/{n}", "", new_secret()))
        for n in range(7)
    ]
    listed: list[Webhook] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page = store.webhooks(cursor, limit=3)
        listed += page.items
        cursor, pages = page.next_cursor, pages + 1
    assert pages == 3
    expected = sorted(created, key=lambda webhook: (webhook.created_ms, webhook.id), reverse=True)
    assert listed == expected


def test_the_last_page_has_no_cursor(store: Store, webhook: Webhook) -> None:
    page = store.webhooks(limit=1)
    assert (page.items, page.next_cursor) == ((webhook,), None)


def test_webhooks_of_one_status_are_listed_in_pages(store: Store) -> None:
    created = [
        store.create_webhook(NewWebhook(f"https://example.com/{n}", "", new_secret()))
        for n in range(5)
    ]
    disabled = {store.disable_webhook(each.id, "").id for each in created[1:4]}
    first = store.webhooks(limit=2, status=WebhookStatus.DISABLED)
    rest = store.webhooks(first.next_cursor, limit=2, status=WebhookStatus.DISABLED)
    assert (len(first.items), len(rest.items), rest.next_cursor) == (2, 1, None)
    assert {each.id for each in first.items + rest.items} == disabled
    assert store.webhooks(status=WebhookStatus.ENABLED).items == ()


def test_active_replays_are_returned_by_webhook(store: Store, webhook: Webhook) -> None:
    over, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    store.cancel_replay(over.id)
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1, 2)))
    idle = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    assert store.active_replays_of([webhook.id, idle.id]) == {webhook.id: replay}
    assert store.active_replays_of([idle.id]) == store.active_replays_of([]) == {}


@pytest.mark.parametrize(
    "cursor", ["", "x", "MTIz", "é", "=", "MS5h=", "OTk5OTk5OTk5OTk5OTk5OTk5OTkuYQ"]
)
def test_an_invalid_cursor_is_rejected(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidCursor, match="nextCursor"):
        store.webhooks(cursor)
