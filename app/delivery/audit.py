"""The audit log entry of a webhook that Rewind disables by itself."""

from typing import Any

from app.audit_log import record_change
from app.domain.model import Webhook


def log_webhook_disabled(webhook: Webhook, reason: str, replay_id: str | None = None) -> None:
    """Log the change as the API does for a request; `replay_id` is the replay that caused it."""
    details: dict[str, Any] = {} if replay_id is None else {"replay": replay_id}
    record_change(
        "disableWebhook", webhook.id, account_id=webhook.account_id, reason=reason, **details
    )
