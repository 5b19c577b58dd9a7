"""A line for every change that a command makes to the database by itself: who, what, to which."""

import logging
import os
from typing import Final

from app.domain.accounts import ApiKey

LOGGER: Final = logging.getLogger("rewind.audit")


def note_key(action: str, key: ApiKey) -> None:
    """Say that the user of this process did `action` to a key; its text is not known here."""
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
