"""Limits of a request: the size of its URL, headers and body, the time for its body, its client."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.problems import (
    BODY_TOO_LARGE,
    HEADERS_TOO_LARGE,
    RATE_LIMITED,
    URL_TOO_LONG,
    Kind,
    Problem,
)
from app.http.request_log import client_host
from app.services.authentication import network_of
from app.services.errors import FieldError
from app.services.limits import QuotaCounter
from app.services.services import Services

URL_BYTES_MAX: Final = 8 * 1024
"""RFC 9110 section 4.1 recommends to support 8,000 bytes; our longest part is a cursor of 500."""

HEADERS_BYTES_MAX: Final = 16 * 1024
"""Names and values together; proxies add a kilobyte or two."""

DOCUMENT_BYTES_MAX: Final = 64 * 1024
"""Of every body except events: the largest is a webhook with a URL of 2 KiB."""

BODY_S: Final = 60.0
"""How long a body may take: a minute for eight megabytes. A slow body occupies a connection."""

Respond = Callable[[Problem, Scope, Receive, Send], Awaitable[None]]


async def _respond(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    await problem.response()(scope, receive, send)


class OpenPathLimit:
    """Limits the requests of one client to the paths that need no key; `is_open` selects them."""

    def __init__(
        self,
        app: ASGIApp,
        is_open: Callable[[str], bool],
        services: Services,
        respond: Respond = _respond,
    ) -> None:
        self._app = app
        self._is_open = is_open
        self._metrics = services.metrics
        self._limit = services.settings.open_requests_per_minute
        self._requests = QuotaCounter()
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject a request."""
        if scope["type"] == "http" and self._is_open(scope["path"]):
            network = network_of(client_host(scope) or "")
            quota = self._requests.count_request(network, self._limit, time.monotonic())
            if quota.is_exceeded:
                self._metrics.count_rate_limited("none")
                headers = {"retry-after": str(quota.reset_s)}
                problem = Problem(RATE_LIMITED, quota.refusal().detail, headers=headers)
                await self._respond(problem, scope, receive, send)
                return
        await self._app(scope, receive, send)


class HeadLimit:
    """Rejects requests whose URL or headers are too large; `respond` renders the problem."""

    def __init__(self, app: ASGIApp, respond: Respond = _respond) -> None:
        self._app = app
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject a request."""
        problem = _check_head(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await self._respond(problem, scope, receive, send)


def _check_head(scope: Scope) -> Problem | None:
    url = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if url > URL_BYTES_MAX:
        return _too_large(URL_TOO_LONG, "url", url, URL_BYTES_MAX)
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    if headers > HEADERS_BYTES_MAX:
        return _too_large(HEADERS_TOO_LARGE, "headers", headers, HEADERS_BYTES_MAX)
    return None


def _too_large(kind: Kind, field: str, found: int, bytes_max: int) -> Problem:
    return Problem.of_fields(
        kind, [FieldError(field, f"{found} bytes", f"at most {bytes_max} bytes")]
    )


class BodyTooLarge(HTTPException):
    """A body above its limit.

    An `HTTPException`, because FastAPI reports any other error while a body is read as a parsing
    error.
    """

    def __init__(self, bytes_max: int, announced: int | None) -> None:
        super().__init__(BODY_TOO_LARGE.status)
        self.bytes_max = bytes_max
        self.announced = announced

    def problem(self) -> Problem:
        """The error as a problem."""
        value = "more" if self.announced is None else f"{self.announced} bytes"
        wrong = FieldError("body", value, f"at most {self.bytes_max} bytes")
        return Problem.of_fields(BODY_TOO_LARGE, [wrong])


class BodyLimit:
    """Counts the bytes of a body while it is read, and stops at the limit.

    A Content-Length above the limit is rejected before anything is read; a wrong or missing one
    makes no difference.
    """

    def __init__(self, app: ASGIApp, events_bytes_max: int) -> None:
        self._app = app
        self._events_bytes_max = events_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with a limited `receive`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bytes_max = self._events_bytes_max if scope["path"] == "/events" else DOCUMENT_BYTES_MAX
        await self._app(scope, _limit(receive, bytes_max, _content_length(scope)), send)


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None


def _limit(receive: Receive, bytes_max: int, announced: int | None) -> Receive:
    count = 0
    is_incomplete = True
    end_s = asyncio.get_running_loop().time() + BODY_S

    async def limited_receive() -> Message:
        nonlocal count, is_incomplete
        if announced is not None and announced > bytes_max:
            raise BodyTooLarge(bytes_max, announced)
        try:
            # After the body only the disconnect follows, at any time.
            async with asyncio.timeout_at(end_s if is_incomplete else None):
                message = await receive()
        except TimeoutError:
            detail = f"the body was not received within {BODY_S:g} s"
            raise HTTPException(408, detail, {"connection": "close"}) from None
        is_incomplete = message.get("more_body", False)
        count += len(message.get("body", b""))
        if count > bytes_max:
            raise BodyTooLarge(bytes_max, announced)
        return message

    return limited_receive
