"""A line for every change that was asked for, done or refused: who, what, to which, from where."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOGGER: Final = logging.getLogger("rewind.audit")

CHANGING: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


@dataclass(frozen=True, slots=True)
class _Change:
    method: str
    path: re.Pattern[str]
    action: str


class Changes:
    """The operations that change something, found by method and path."""

    def __init__(self, changes: tuple[_Change, ...]) -> None:
        self._changes = changes

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Those of an OpenAPI document."""
        return cls(
            tuple(
                _Change(method.upper(), compile_path(path)[0], operation["operationId"])
                for path, operations in document["paths"].items()
                for method, operation in operations.items()
                if method.upper() in CHANGING
            )
        )

    def find(self, method: str, path: str) -> tuple[str, str | None] | None:
        """The operation's id and what it is done to, as "wh_1" or "wh_1/vip"; None without one."""
        for change in self._changes:
            match = change.path.fullmatch(path) if change.method == method else None
            if match:
                return change.action, "/".join(match.groups()) or None
        return None


class Audit:
    """Writes the lines. No body, query or header is in them: they may hold secrets.

    Requests that the gate refuses are told of too. Paths that no operation has change nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._changes: Changes | None = None

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
        if self._changes is None:
            # The routes are complete by the first request only.
            self._changes = Changes.of(scope["app"].openapi())
        return self._changes.find(scope["method"], scope["path"])


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
            "target": target,
            "status": status,
            "client": scope["client"][0] if scope.get("client") else None,
        },
    )
