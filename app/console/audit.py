"""A line for every change that was asked for in the console, as the API writes of its own."""

import logging
from typing import Final

from fastapi import Request

from app.replay.accounts import ApiKey

LOGGER: Final = logging.getLogger("rewind.audit")


def note_change(
    request: Request, key: ApiKey, action: str, target: str | None, status: int
) -> None:
    """Write who asked for what, and how it was answered: `action` is the API's operation.

    Of many at a time `target` says how many.
    """
    LOGGER.info(
        "change",
        extra={
            "key_id": key.id,
            "account_id": key.account.id,
            "action": action,
            "target": target,
            "status": status,
            "client": request.client.host if request.client else None,
            "by": "console",
        },
    )
