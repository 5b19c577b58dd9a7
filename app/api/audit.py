"""The audit middleware of the API, and the lookup of a request's OpenAPI operation."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.audit_log import record_change
from app.http.request_log import client_host

CHANGING: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


@dataclass(frozen=True, slots=True)
class _Operation:
    method: str
    path: re.Pattern[str]
    id: str


class OperationTable:
    """Finds operations by method and path, also for requests that reached no route."""

    def __init__(self, operations: tuple[_Operation, ...]) -> None:
        self._operations = operations

    @classmethod
    def of(cls, routes: Iterable[BaseRoute]) -> Self:
        """The operations of `routes`, each of which has an `operation_id`."""
        return cls(
            tuple(
                _Operation(method, route.path_regex, route.operation_id)
                for route in routes
                if isinstance(route, APIRoute) and route.operation_id is not None
                for method in sorted(route.methods or ())
            )
        )

    def find(self, method: str, path: str) -> tuple[str, str | None] | None:
        """The id and the target, such as "wh_1" or "wh_1/vip", of an operation, or None."""
        for operation in self._operations:
            match = operation.path.fullmatch(path) if operation.method == method else None
            if match:
                return operation.id, "/".join(match.groups()) or None
        return None

    def methods(self, path: str) -> list[str]:
        """The methods of `path`, sorted."""
        return sorted({each.method for each in self._operations if each.path.fullmatch(path)})


class Audit:
    """Writes a line for every request that would change something, also if it is rejected.

    Requests of unknown paths change nothing.
    """

    def __init__(self, app: ASGIApp, operations: OperationTable) -> None:
        self._app = app
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        operation = self._operation(scope)
        if operation is None:
            await self._app(scope, receive, send)
            return
        action, target = operation
        # The server answers an exception with a 500.
        status = 500

        async def recording_send(message: Message) -> None:
            nonlocal status, target
            if message["type"] == "http.response.start":
                status = message["status"]
                target = target or _created_id(message)
            await send(message)

        try:
            await self._app(scope, receive, recording_send)
        finally:
            key = scope.get("state", {}).get("api_key")
            record_change(
                action,
                target,
                key_id=None if key is None else key.id,
                account_id=None if key is None else key.account.id,
                status=status,
                client=client_host(scope),
            )

    def _operation(self, scope: Scope) -> tuple[str, str | None] | None:
        if scope["type"] != "http" or scope["method"] not in CHANGING:
            return None
        return self._operations.find(scope["method"], scope["path"])


def _created_id(message: Message) -> str | None:
    location = Headers(raw=message["headers"]).get("location")
    return None if location is None else location.rpartition("/")[2]
