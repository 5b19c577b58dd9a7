"""A line for every change that was asked for in the console, as the API writes of its own."""

import logging
from typing import Final

from fastapi import Request

from app.domain.accounts import ApiKey

LOGGER: Final = logging.getLogger("rewind.audit")


def note_change(
    request: Request, key: ApiKey, action: str, target: str | None, status: int
) -> None:
    """Write who asked for what, and how it was answered: `action` is the API's operation.

    Of many at a time `target` says how many.
    """
    request.state.is_noted = True
    _write(request, key, action, target, status)


def note_refusal(request: Request, status: int) -> None:
    """Write of a change that was refused before its page could say so, if it was one."""
    action = getattr(request.scope.get("route"), "operation_id", None)
    if action is None or getattr(request.state, "is_noted", False):
        return
    viewer = getattr(request.state, "viewer", None)
    target = next(iter(request.path_params.values()), None)
    _write(request, None if viewer is None else viewer.key, action, target, status)


def _write(
    request: Request, key: ApiKey | None, action: str, target: str | None, status: int
) -> None:
    LOGGER.info(
        "change",
        extra={
            "key_id": None if key is None else key.id,
            "account_id": None if key is None else key.account.id,
            "action": action,
            "target": target,
            "status": status,
            "client": request.client.host if request.client else None,
            "by": "console",
        },
    )
