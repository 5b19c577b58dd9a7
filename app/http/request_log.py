"""One log line and one count for every request."""

import logging
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.services.metrics import ApiMetrics

LOGGER: Final = logging.getLogger("rewind.api")

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_UNMATCHED: Final = "unmatched"

_PATH_CHARACTERS_MAX: Final = 200
"""Our longest has some 110; a client may send one as long as a request's head."""


def client_host(scope: Scope) -> str | None:
    """The IP address that a request came from."""
    return scope["client"][0] if scope.get("client") else None


class RequestLog:
    """Logs and counts every response. Queries and headers are omitted: they may hold secrets."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The server answers an exception with a 500.
        status = 500

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        start_s = time.perf_counter()
        try:
            await self._app(scope, receive, recording_send)
        finally:
            self._record(scope, status, time.perf_counter() - start_s)

    def _record(self, scope: Scope, status: int, duration_s: float) -> None:
        # Clients choose unknown methods and paths: these must not become time series.
        method = scope["method"] if scope["method"] in _METHODS else _UNMATCHED
        route = getattr(scope.get("route"), "path_format", _UNMATCHED)
        self._metrics.count_request(method, route, status, duration_s)
        LOGGER.info(
            "request",
            extra={
                "method": scope["method"],
                "path": scope["path"][:_PATH_CHARACTERS_MAX],
                "status": status,
                "duration_ms": round(duration_s * 1000, 1),
                "client": client_host(scope),
            },
        )
