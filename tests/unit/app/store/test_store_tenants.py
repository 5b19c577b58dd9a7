"""Accounts: entities of other accounts are not found."""

from collections.abc import Callable

import pytest

from app.domain.accounts import Scope
from app.domain.model import (
    IdempotencyKey,
    NewReplay,
    NewWebhook,
    Replay,
    ReplayFilter,
    Webhook,
    WebhookStatus,
    Window,
)
from app.domain.rules import Rule
from app.domain.states import ReplayState
from app.store import IdempotencyConflict, ReplayNotFound, Store, TooManyWebhooks, WebhookNotFound
from app.webhooks.signing import new_secret
from tests.support.database.api_keys import issue_key

OPEN = ReplayFilter(frozenset({ReplayState.OPEN}))

WINDOW = Window(1_000, 2_000)
URL = "https://example.com/hook"


class Tenant:
    """An account with a webhook, a rule, and a replay."""

    def __init__(self, store: Store, name: str) -> None:
        key, _ = issue_key(store, name, Scope.DEVELOPER, "")
        assert key.account_filter is not None
        self.account = key.account_filter
        self.webhook = store.create_webhook(NewWebhook(URL, name, new_secret(), self.account))
        store.put_rule(Rule(self.webhook.id, "default", ("*",)), of_account=self.account)
        new = NewReplay(self.webhook.id, WINDOW)
        self.replay, _ = store.create_replay(new, of_account=self.account)


@pytest.fixture
def acme(store: Store) -> Tenant:
    return Tenant(store, "acme")


@pytest.fixture
def rival(store: Store) -> Tenant:
    return Tenant(store, "rival")


def test_the_webhooks_of_an_account_are_limited(store: Store, acme: Tenant, rival: Tenant) -> None:
    new = NewWebhook(URL, "another", new_secret(), acme.account)
    second = store.create_webhook(new, at_most=2)
    with pytest.raises(TooManyWebhooks, match="has 2 webhooks"):
        store.create_webhook(new, at_most=2)
    # Neither another's nor a deleted one counts.
    store.create_webhook(NewWebhook(URL, "", new_secret(), rival.account), at_most=2)
    store.delete_webhook(second.id)
    store.create_webhook(new, at_most=2)
    store.create_webhook(new)


def webhook_calls(store: Store, webhook: Webhook, account: str) -> list[Callable[[], object]]:
    """All calls of an account on a webhook and its rules."""
    wh = webhook.id
    return [
        lambda: store.webhook(wh, of_account=account),
        lambda: store.update_webhook(wh, url="https://evil.example/", of_account=account),
        lambda: store.update_webhook(wh, description="mine", of_account=account),
        lambda: store.update_webhook(wh, of_account=account),
        lambda: store.disable_webhook(wh, "why", of_account=account),
        lambda: store.rotate_secret(wh, new_secret(), 0, of_account=account),
        lambda: store.put_rule(Rule(wh, "default", ("x",)), of_account=account),
        lambda: store.put_rule(Rule(wh, "new", ("x",)), of_account=account),
        lambda: store.rule(wh, "default", of_account=account),
        lambda: store.rules(wh, of_account=account),
        lambda: store.delete_rule(wh, "default", of_account=account),
        lambda: store.create_replay(NewReplay(wh, WINDOW), of_account=account),
        lambda: store.delete_webhook(wh, of_account=account),
    ]


def replay_calls(store: Store, replay: Replay, account: str) -> list[Callable[[], object]]:
    """All calls of an account on a replay."""
    return [
        lambda: store.replay(replay.id, of_account=account),
        lambda: store.failures(replay.id, of_account=account),
        lambda: store.pause_replay(replay.id, of_account=account),
        lambda: store.resume_replay(replay.id, of_account=account),
        lambda: store.cancel_replay(replay.id, of_account=account),
    ]


def test_entities_of_another_account_are_not_found(
    store: Store, acme: Tenant, rival: Tenant
) -> None:
    for call in webhook_calls(store, rival.webhook, acme.account):
        with pytest.raises(WebhookNotFound):
            call()
    for call in replay_calls(store, rival.replay, acme.account):
        with pytest.raises(ReplayNotFound):
            call()
    assert store.webhook(rival.webhook.id) == rival.webhook
    assert store.rules(rival.webhook.id).items == (Rule(rival.webhook.id, "default", ("*",)),)
    assert store.replay(rival.replay.id) == rival.replay


def test_failures_of_another_accounts_replay_cannot_be_retried(
    store: Store, acme: Tenant, rival: Tenant
) -> None:
    store.cancel_replay(acme.replay.id)
    store.cancel_replay(rival.replay.id)
    new = NewReplay(acme.webhook.id, WINDOW, retry_of=rival.replay.id)
    with pytest.raises(ReplayNotFound):
        store.create_replay(new, of_account=acme.account)


def test_an_account_can_use_all_operations_on_its_own_entities(store: Store, acme: Tenant) -> None:
    store.pause_replay(acme.replay.id, of_account=acme.account)
    store.resume_replay(acme.replay.id, of_account=acme.account)
    store.cancel_replay(acme.replay.id, of_account=acme.account)
    for call in webhook_calls(store, acme.webhook, acme.account):
        call()


def test_lists_have_only_entities_of_the_account(store: Store, acme: Tenant, rival: Tenant) -> None:
    assert store.webhooks(of_account=acme.account).items == (acme.webhook,)
    assert store.replays(of_account=rival.account).items == (rival.replay,)
    assert (
        store.replays(ReplayFilter(webhook_id=rival.webhook.id), of_account=acme.account).items
        == ()
    )
    assert store.replays(OPEN, of_account=acme.account).items == (acme.replay,)
    assert store.webhooks(of_account="acc_none").items == ()
    assert set(store.webhooks().items) == {acme.webhook, rival.webhook}
    assert set(store.replays().items) == {acme.replay, rival.replay}


def test_lists_of_an_account_continue_at_their_cursor(store: Store, acme: Tenant) -> None:
    for number in range(4):
        for account in (acme.account, "acc_other"):
            store.create_webhook(NewWebhook(URL, str(number), new_secret(), account))
    first = store.webhooks(limit=3, of_account=acme.account)
    rest = store.webhooks(first.next_cursor, limit=3, of_account=acme.account)
    assert rest.next_cursor is None
    listed = first.items + rest.items
    assert len(set(listed)) == len(listed) == 5
    assert {webhook.account_id for webhook in listed} == {acme.account}


def test_a_replay_belongs_to_the_account_of_its_webhook(store: Store, acme: Tenant) -> None:
    assert acme.replay.account_id == acme.account
    store.cancel_replay(acme.replay.id)
    by_operator, _ = store.create_replay(NewReplay(acme.webhook.id, WINDOW))
    assert by_operator.account_id == acme.account
    assert store.replay(by_operator.id, of_account=acme.account) == by_operator


def test_each_account_has_its_own_idempotency_keys(
    store: Store, acme: Tenant, rival: Tenant
) -> None:
    key = IdempotencyKey.of("key", b"body")
    for tenant in (acme, rival):
        store.cancel_replay(tenant.replay.id)
    mine, _ = store.create_replay(NewReplay(acme.webhook.id, WINDOW), key, of_account=acme.account)
    assert store.find_replay_by_idempotency_key(key, of_account=acme.account) == mine
    assert store.find_replay_by_idempotency_key(key, of_account=rival.account) is None
    assert store.find_replay_by_idempotency_key(key) is None
    theirs, is_new = store.create_replay(
        NewReplay(rival.webhook.id, WINDOW), key, of_account=rival.account
    )
    assert is_new
    assert theirs.id != mine.id
    with pytest.raises(IdempotencyConflict) as refused:
        store.find_replay_by_idempotency_key(
            IdempotencyKey.of("key", b"other"), of_account=rival.account
        )
    assert refused.value.replay_id == theirs.id


def test_operators_and_accounts_share_no_idempotency_keys(store: Store, acme: Tenant) -> None:
    store.cancel_replay(acme.replay.id)
    key = IdempotencyKey.of("key", b"body")
    store.create_replay(NewReplay(acme.webhook.id, WINDOW), key, of_account=acme.account)
    for spelling in (f"{acme.account}key", f"{acme.account} key", f"{acme.account}:key"):
        assert store.find_replay_by_idempotency_key(IdempotencyKey.of(spelling, b"body")) is None


def test_webhooks_without_an_account_belong_to_the_operator(
    store: Store, webhook: Webhook, acme: Tenant
) -> None:
    assert store.webhooks(of_account="acc_default").items == (webhook,)
    with pytest.raises(WebhookNotFound):
        store.webhook(webhook.id, of_account=acme.account)
    assert store.webhook(acme.webhook.id).status is WebhookStatus.PENDING
