"""Audit log lines for changes that commands make to the database directly."""

import logging
import os
from typing import Final

from app.domain.accounts import ApiKey

LOGGER: Final = logging.getLogger("rewind.audit")


def log_key_change(action: str, key: ApiKey) -> None:
    """Log that the user of this process created or revoked a key."""
    LOGGER.info(
        "change",
        extra={
            "action": action,
            "target": key.id,
            "account_id": key.account.id,
            "scope": key.scope,
            "uid": os.getuid(),
        },
    )
