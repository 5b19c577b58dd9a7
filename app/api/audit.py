"""A line for every change that was asked for, done or refused: who, what, to which, from where."""

import logging
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.operation_table import OperationTable

LOGGER: Final = logging.getLogger("rewind.audit")

_TARGET_CHARACTERS_MAX: Final = 200
"""Those of ours have up to 110; a stranger may name one as long as the head of a request."""

CHANGING: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class Audit:
    """Writes the lines. No body, query or header is in them: they may hold secrets.

    Requests that the gate refuses are told of too. Paths that no operation has change nothing.
    """

    def __init__(self, app: ASGIApp, operations: Callable[[], OperationTable]) -> None:
        self._app = app
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = self._found(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        action, target = found
        # Should an error come through, the server's answer to it is a 500.
        status = 500

        async def noting_send(message: Message) -> None:
            nonlocal status, target
            if message["type"] == "http.response.start":
                status = message["status"]
                target = target or _created(message)
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        finally:
            _note(scope, action, target, status)

    def _found(self, scope: Scope) -> tuple[str, str | None] | None:
        if scope["type"] != "http" or scope["method"] not in CHANGING:
            return None
        return self._operations().find(scope["method"], scope["path"])


def _created(message: Message) -> str | None:
    location = Headers(raw=message["headers"]).get("location")
    return None if location is None else location.rpartition("/")[2]


def _note(scope: Scope, action: str, target: str | None, status: int) -> None:
    key = scope.get("state", {}).get("api_key")
    LOGGER.info(
        "change",
        extra={
            "key_id": None if key is None else key.id,
            "account_id": None if key is None else key.account.id,
            "action": action,
            "target": target and target[:_TARGET_CHARACTERS_MAX],
            "status": status,
            "client": scope["client"][0] if scope.get("client") else None,
        },
    )
