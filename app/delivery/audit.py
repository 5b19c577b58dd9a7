"""The audit log entry of a webhook that Rewind disables by itself."""

import logging
from typing import Final

from app.domain.model import Webhook

_LOGGER: Final = logging.getLogger("rewind.audit")


def log_webhook_disabled(webhook: Webhook, reason: str, replay_id: str | None = None) -> None:
    """Log the change as the API does for a request; `replay_id` is the replay that caused it."""
    _LOGGER.info(
        "change",
        extra={
            "key_id": None,
            "account_id": webhook.account_id,
            "action": "disableWebhook",
            "target": webhook.id,
            "status": None,
            "client": None,
            "reason": reason,
            **({} if replay_id is None else {"replay": replay_id}),
        },
    )
