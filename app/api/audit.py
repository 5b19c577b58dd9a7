"""The audit middleware of the API: a line for every request that would change something."""

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.operation_table import OperationTable
from app.audit_log import record_change
from app.http.request_log import client_host

CHANGING: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class Audit:
    """Writes the lines, also of rejected requests; requests of unknown paths change nothing."""

    def __init__(self, app: ASGIApp, operations: Callable[[], OperationTable]) -> None:
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
        return self._operations().find(scope["method"], scope["path"])


def _created_id(message: Message) -> str | None:
    location = Headers(raw=message["headers"]).get("location")
    return None if location is None else location.rpartition("/")[2]
