"""One line and one count for every request, whatever became of it."""

import logging
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.metrics import Metrics

LOGGER: Final = logging.getLogger("rewind.api")

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_UNMATCHED: Final = "unmatched"

_PATH_CHARACTERS_MAX: Final = 200
"""The longest of ours has some 110; a stranger's may be as long as the head of a request."""


class RequestLog:
    """Logs and counts every answer. Queries and headers stay out: they may hold secrets."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Should an error come through, the server's answer to it is a 500.
        status = 500

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        start_s = time.perf_counter()
        try:
            await self._app(scope, receive, noting_send)
        finally:
            self._note(scope, status, time.perf_counter() - start_s)

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        # A stranger chooses the words of an unknown route: they must not become time series.
        method = scope["method"] if scope["method"] in _METHODS else _UNMATCHED
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        self._metrics.count_request(method, route, status, duration_s)
        LOGGER.info(
            "request",
            extra={
                "method": scope["method"],
                "path": scope["path"][:_PATH_CHARACTERS_MAX],
                "status": status,
                "duration_ms": round(duration_s * 1000, 1),
                "client": scope["client"][0] if scope.get("client") else None,
            },
        )
