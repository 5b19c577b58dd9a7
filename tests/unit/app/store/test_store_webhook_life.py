"""The status of a webhook: verification, disabling, a new URL, a new secret."""

from collections.abc import Callable

import pytest

from app.domain.model import NewWebhook, Validation, Webhook, WebhookStatus
from app.store import Store, WebhookNotFound
from app.store.sql import TEXT_CHARS_MAX
from app.webhooks.signing import new_secret

URL = "https://example.com/hook"
DAY_MS = 86_400_000


def test_a_new_webhook_is_pending(store: Store) -> None:
    new = NewWebhook(URL, "orders", new_secret(), "acc_1", Validation.CRC)
    webhook = store.create_webhook(new)
    assert (webhook.account_id, webhook.validation) == ("acc_1", Validation.CRC)
    assert (webhook.status, webhook.status_reason) == (WebhookStatus.PENDING, None)
    assert webhook.secret == new.secret
    assert webhook.validated_ms is None
    assert webhook.failing_since_ms is None
    assert webhook.secrets_at(0) == (new.secret,)


def test_a_verification_enables_the_webhook_and_stores_the_time(
    store: Store, webhook: Webhook
) -> None:
    store.record_failed_verification(webhook.id, webhook.url, "answered 500")
    store.record_failing_since(webhook.id, 1_000)
    enabled = store.enable_webhook(webhook.id, webhook.url)
    assert (enabled.status, enabled.status_reason) == (WebhookStatus.ENABLED, None)
    assert enabled.failing_since_ms is None
    assert enabled.validated_ms is not None
    assert enabled.validated_ms >= webhook.created_ms
    assert store.webhook(webhook.id) == enabled


def test_the_verification_of_another_url_changes_nothing(store: Store, webhook: Webhook) -> None:
    moved = store.update_webhook(webhook.id, url="https://example.com/new")
    assert store.enable_webhook(webhook.id, webhook.url) == moved
    assert store.record_failed_verification(webhook.id, webhook.url, "answered 500") == moved
    # To MySQL, texts that differ in spaces at their end are equal.
    assert store.enable_webhook(webhook.id, moved.url + " ") == moved
    assert store.webhook(webhook.id) == moved


def test_a_failed_verification_stores_its_reason_unless_enabled(
    store: Store, webhook: Webhook
) -> None:
    pending = store.record_failed_verification(webhook.id, webhook.url, "answered 500")
    assert (pending.status, pending.status_reason) == (WebhookStatus.PENDING, "answered 500")
    store.disable_webhook(webhook.id, "answered 410")
    disabled = store.record_failed_verification(webhook.id, webhook.url, "answered 404")
    assert (disabled.status, disabled.status_reason) == (WebhookStatus.DISABLED, "answered 404")
    enabled = store.enable_webhook(webhook.id, webhook.url)
    assert store.record_failed_verification(webhook.id, webhook.url, "answered 500") == enabled


def test_a_disabled_webhook_has_its_reason_until_it_is_verified(
    store: Store, webhook: Webhook
) -> None:
    store.enable_webhook(webhook.id, webhook.url)
    disabled = store.disable_webhook(webhook.id, "answered 410")
    assert (disabled.status, disabled.status_reason) == (WebhookStatus.DISABLED, "answered 410")
    assert disabled.validated_ms is not None
    again = store.enable_webhook(webhook.id, webhook.url)
    assert (again.status, again.status_reason) == (WebhookStatus.ENABLED, None)


def test_a_receiver_at_a_former_url_disables_nothing(store: Store, webhook: Webhook) -> None:
    moved = store.update_webhook(webhook.id, url="https://example.com/new")
    assert store.disable_webhook(webhook.id, "answered 410", at_url=webhook.url) == moved
    assert store.webhook(webhook.id) == moved
    disabled = store.disable_webhook(webhook.id, "answered 410", at_url=moved.url)
    assert disabled.status is WebhookStatus.DISABLED


def test_a_long_reason_is_cut(store: Store, webhook: Webhook) -> None:
    for change in (
        store.disable_webhook(webhook.id, "ü" * 70_000),
        store.record_failed_verification(webhook.id, webhook.url, "ö" * 70_000),
    ):
        assert change.status_reason is not None
        assert len(change.status_reason) == TEXT_CHARS_MAX


def test_a_new_url_needs_a_verification(store: Store, webhook: Webhook) -> None:
    store.enable_webhook(webhook.id, webhook.url)
    store.record_failing_since(webhook.id, 1_000)
    moved = store.update_webhook(webhook.id, url="https://example.com/new")
    assert (moved.url, moved.status) == ("https://example.com/new", WebhookStatus.PENDING)
    assert (moved.validated_ms, moved.failing_since_ms) == (None, None)
    store.disable_webhook(webhook.id, "its owner said so")
    moved = store.update_webhook(webhook.id, url=URL)
    assert (moved.status, moved.status_reason) == (WebhookStatus.PENDING, None)


def test_a_new_description_needs_no_verification(store: Store, webhook: Webhook) -> None:
    enabled = store.enable_webhook(webhook.id, webhook.url)
    assert store.update_webhook(webhook.id, url=webhook.url) == enabled
    described = store.update_webhook(webhook.id, description="new")
    assert (described.status, described.description) == (WebhookStatus.ENABLED, "new")


def test_after_a_rotation_both_secrets_sign_during_the_grace_period(
    store: Store, webhook: Webhook
) -> None:
    second = new_secret()
    rotated = store.rotate_secret(webhook.id, second, DAY_MS)
    until_ms = rotated.previous_secret_until_ms
    assert until_ms is not None
    assert until_ms >= webhook.created_ms + DAY_MS
    assert rotated.secrets_at(until_ms - 1) == (second, webhook.secret)
    assert rotated.secrets_at(until_ms) == (second,)
    assert store.webhook(webhook.id) == rotated
    assert webhook.secret not in repr(rotated)


def test_a_second_rotation_drops_the_oldest_secret(store: Store, webhook: Webhook) -> None:
    second, third = new_secret(), new_secret()
    store.rotate_secret(webhook.id, second, DAY_MS)
    assert store.rotate_secret(webhook.id, third, DAY_MS).secrets_at(0) == (third, second)


def test_a_repeated_rotation_drops_no_secret(store: Store, webhook: Webhook) -> None:
    second = new_secret()
    rotated = store.rotate_secret(webhook.id, second, DAY_MS)
    assert store.rotate_secret(webhook.id, second, DAY_MS) == rotated
    assert rotated.secrets_at(0) == (second, webhook.secret)


def test_a_rotation_without_a_grace_period_drops_the_old_secret(
    store: Store, webhook: Webhook
) -> None:
    secret = new_secret()
    store.rotate_secret(webhook.id, new_secret(), DAY_MS)
    rotated = store.rotate_secret(webhook.id, secret, 0)
    assert (rotated.secret, rotated.previous_secret) == (secret, None)
    assert rotated.previous_secret_until_ms is None


def test_the_start_of_failures_is_stored_and_removed(store: Store, webhook: Webhook) -> None:
    store.record_failing_since(webhook.id, 1_234)
    assert store.webhook(webhook.id).failing_since_ms == 1_234
    store.record_failing_since(webhook.id, None)
    assert store.webhook(webhook.id) == webhook


def test_failures_of_a_receiver_do_not_change_the_routing_table(
    store: Store, webhook: Webhook
) -> None:
    revision = store.routing_changes(0).revision
    store.record_failing_since(webhook.id, 1_234)
    assert store.routing_changes(revision).webhooks == ()


def test_a_deleted_webhook_cannot_be_changed(store: Store, webhook: Webhook) -> None:
    store.delete_webhook(webhook.id)
    store.record_failing_since(webhook.id, 1_000)
    for webhook_id in (webhook.id, "wh_none"):
        changes: list[Callable[[], object]] = [
            lambda: store.enable_webhook(webhook_id, URL),  # noqa: B023
            lambda: store.record_failed_verification(webhook_id, URL, "why"),  # noqa: B023
            lambda: store.disable_webhook(webhook_id, "why"),  # noqa: B023
            lambda: store.rotate_secret(webhook_id, new_secret(), 0),  # noqa: B023
        ]
        for change in changes:
            with pytest.raises(WebhookNotFound):
                change()
