"""The registry's REST interface as an ASGI application, with limits on the cost of requests.

Registry calls block on the log or on parsing, so they run in thread pools. Changes and unknown ids
may wait for the log, and have their own pools: while it hangs, known schemas are still served.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from logbroker.schemas.access import RequestAccess
from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.domain.schema_log import LogNeeded
from logbroker.schemas.errors import SchemaRegistryError, StoreFailed
from logbroker.schemas.rest.api import ROUTES, RawSchema, Route
from logbroker.schemas.rest.errors import RequestRejected
from logbroker.schemas.rest.request import RestRequest
from logbroker.schemas.rest.routing import Routing, query_of
from logbroker.schemas.service_metrics import ServiceMetrics

URL_BYTES_MAX: Final = 8 * 1024
"""The length that RFC 9110 section 4.1 requires every server to support."""

HEADERS_BYTES_MAX: Final = 16 * 1024
"""Total length of names and values."""

BODY_BYTES_MAX: Final = 4 * 2**20
"""A schema of a megabyte, as text in JSON."""

BODY_S: Final = 30.0
"""Time limit of receiving a body."""

LOOKUP_THREADS: Final = 4
"""Threads for look-ups in memory."""

CHECK_THREADS: Final = 4
"""Threads for requests with a schema, which must be parsed."""

NEWEST_THREADS: Final = 16
"""Threads for unknown ids, which wait for the log."""

CHANGE_THREADS: Final = 16
UNDER_WAY_MAX: Final = 200
"""Requests running in or waiting for one thread pool; further ones get 503."""

LOG_ANSWER_S: Final = 3.0
"""How long probes and scrapes wait for the log; their clients time out soon after."""

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

ALLOWED_TYPES: Final = (
    CONTENT_TYPE,
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
"""Content type of bodies. Web pages can send other types to any address without a preflight
request.
"""

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Routes for probes, which need no user."""

_log: Final = logging.getLogger(__name__)

_client_log: Final = logging.getLogger("logbroker.schemas.requests")
"""Its lines are limited: see `CLIENT_LOGGERS` of `logbroker.json_log`."""

_PLAIN: Final = "text/plain; charset=utf-8"


class Answer:
    """Status, headers and body of a response."""

    def __init__(
        self,
        status: int,
        body: bytes,
        content_type: str = CONTENT_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = {
            "content-type": content_type,
            "content-length": str(len(body)),
            **(headers or {}),
        }

    @property
    def messages(self) -> list[Message]:
        """The ASGI messages of the response."""
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        return [
            {"type": "http.response.start", "status": self.status, "headers": headers},
            {"type": "http.response.body", "body": self.body},
        ]


class RegistryService:
    """Serves one registry; close it after the server has stopped."""

    def __init__(
        self,
        registry: SchemaRegistry,
        ask_log: Callable[[], None],
        access: RequestAccess | None = None,
    ) -> None:
        """Serve `registry`; `ask_log` raises StoreFailed when its log is unreachable.

        Without `access`, every request is accepted.
        """
        self._registry = registry
        self._access = access or RequestAccess()
        self._metrics = ServiceMetrics()
        self._ask_log = ask_log
        self._log_asker = ThreadPoolExecutor(1, "log-asker")
        self._routing = Routing([*ROUTES, *self._operations()])
        self._as_read = registry.as_read()
        self._lookups = _BoundedPool(LOOKUP_THREADS)
        self._checks = _BoundedPool(CHECK_THREADS)
        self._newest = _BoundedPool(NEWEST_THREADS)
        self._changes = _BoundedPool(CHANGE_THREADS)

    def close(self) -> None:
        """Wait for the threads."""
        for desk in (self._lookups, self._checks, self._newest, self._changes):
            desk.close()
        self._log_asker.shutdown(cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] == "http"
        began_s = time.monotonic()
        answer, route, user = await self._answer(scope, receive)
        self._metrics.note(route, answer.status, time.monotonic() - began_s)
        if route is not None and route.needs_write_permission:
            _log_change(scope, answer.status, user)
        for message in answer.messages:
            await send(message)

    async def _answer(
        self, scope: Scope, receive: Receive
    ) -> tuple[Answer, Route | None, str | None]:
        """The response to any request, the route if there is one, and the user if known."""
        route = user = None
        try:
            _expect_small_head(scope)
            self._access.expect_known_host(_header(scope, b"host"))
            route, path = self._routing.find(scope["method"], scope["raw_path"])
            if route.path not in OPEN_PATHS:
                user = self._access.expect_permission(
                    _header(scope, b"authorization"), is_change=route.needs_write_permission
                )
            query = query_of(scope["query_string"])
            body = await _body(scope, receive)
            answer = await self._handle(route, RestRequest(path, query, body))
        except SchemaRegistryError as error:
            answer = _refusal(error)
        except Exception:
            # Outermost handler of a request: no exception may stop the server.
            _client_log.exception(
                "request failed method=%s path=%s", scope["method"], scope["path"]
            )
            answer = _error(500, 500, "HTTP 500 Internal Server Error")
        return answer, route, user

    async def _handle(self, route: Route, request: RestRequest) -> Answer:
        value = await self._value(route, request)
        if isinstance(value, Answer):
            return value
        text = value if isinstance(value, RawSchema) else json.dumps(value)
        return Answer(200, text.encode())

    async def _value(self, route: Route, request: RestRequest) -> Any:
        if route.needs_write_permission:
            return await self._changes.do(lambda: route.handler(self._registry, request))
        desk = self._lookups if route.method == "GET" else self._checks
        try:
            return await desk.do(lambda: route.handler(self._as_read, request))
        except LogNeeded:
            return await self._newest.do(lambda: route.handler(self._registry, request))

    def _operations(self) -> list[Route]:
        return [
            Route("GET", "/healthz", _health),
            Route("GET", "/readyz", self._readiness),
            Route("GET", "/metrics", self._exposition),
        ]

    def _readiness(self, _registry: SchemaRegistry, _request: RestRequest) -> Answer:
        problem = self._problem_with_log()
        if problem is None:
            return Answer(200, b"ok\n", _PLAIN)
        return Answer(503, f"{problem}\n".encode(), _PLAIN)

    def _exposition(self, registry: SchemaRegistry, _request: RestRequest) -> Answer:
        is_up = self._problem_with_log() is None
        body = self._metrics.exposition(registry if is_up else None)
        return Answer(200, body, self._metrics.CONTENT_TYPE)

    def _problem_with_log(self) -> str | None:
        """Why the log is unreachable; None if it is reachable."""
        asked = self._log_asker.submit(self._ask_log)
        try:
            asked.result(LOG_ANSWER_S)
        except StoreFailed as error:
            return str(error)
        except TimeoutError:
            asked.cancel()
            return f"The log did not respond within {LOG_ANSWER_S:g} s."
        return None


class _BoundedPool:
    """A thread pool for blocking calls, with a limit on waiting requests."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, "registry")
        self._under_way = 0

    async def do(self, call: Callable[[], Any]) -> Any:
        if self._under_way >= UNDER_WAY_MAX:
            raise RequestRejected(503, "Too many concurrent requests; retry later.")
        self._under_way += 1
        done = asyncio.get_running_loop().run_in_executor(self._threads, call)
        # A client that disconnects does not cancel its call, which still counts.
        done.add_done_callback(self._end)
        return await asyncio.shield(done)

    def close(self) -> None:
        self._threads.shutdown()

    def _end(self, _done: object) -> None:
        self._under_way -= 1


def _health(_registry: SchemaRegistry, _request: RestRequest) -> Answer:
    return Answer(200, b"ok\n", _PLAIN)


def _expect_small_head(scope: Scope) -> None:
    if len(scope["raw_path"]) + len(scope["query_string"]) > URL_BYTES_MAX:
        raise RequestRejected(414, f"The URL is longer than {URL_BYTES_MAX} bytes.")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADERS_BYTES_MAX:
        raise RequestRejected(431, f"The headers are longer than {HEADERS_BYTES_MAX} bytes.")


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The whole body; empty for methods without a body.

    Raises:
        RequestRejected: it is too large, too slow, of another content type, or the client
            disconnected.
    """
    if scope["method"] not in ("POST", "PUT"):
        return b""
    headers = dict(scope["headers"])
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    if content_type.partition(";")[0].strip().lower() not in ALLOWED_TYPES:
        raise RequestRejected(
            415, f"The content type {content_type!r} is not supported; allowed: {CONTENT_TYPE}."
        )
    announced = headers.get(b"content-length", b"0")
    # A longer number is above the limit anyway.
    _expect_small(int(announced[:18]) if announced.isdigit() else 0)
    try:
        async with asyncio.timeout(BODY_S):
            return await _received(receive)
    except TimeoutError:
        raise RequestRejected(
            408, f"The body did not arrive within {BODY_S:g} s.", _CLOSE
        ) from None


async def _received(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RequestRejected(400, "The client disconnected before the body was complete.")
        body += message.get("body", b"")
        _expect_small(len(body))
        if not message.get("more_body", False):
            return bytes(body)


def _expect_small(size: int) -> None:
    if size > BODY_BYTES_MAX:
        raise RequestRejected(413, f"The body is longer than {BODY_BYTES_MAX} bytes.", _CLOSE)


def _header(scope: Scope, name: bytes) -> str:
    """The first header of a name; empty if there is none."""
    values = (value for each, value in scope["headers"] if each == name)
    value: bytes = next(values, b"")
    return value.decode("latin-1")


def _log_change(scope: Scope, status: int, user: str | None) -> None:
    """Log a change with its client, user and status; lines of rejected ones are limited."""
    client = scope.get("client")
    logger = _log if status < HTTPStatus.BAD_REQUEST else _client_log
    logger.info(
        "change method=%s path=%s status=%s client=%s user=%s",
        *(scope["method"], _target(scope), status, client[0] if client else None, user),
    )


def _target(scope: Scope) -> str:
    """Path and query as sent: percent-encoded bytes cannot break a log line."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("ascii", "backslashreplace")


def _refusal(error: SchemaRegistryError) -> Answer:
    headers = error.headers if isinstance(error, RequestRejected) else {}
    return _error(error.status, error.code, str(error), headers)


def _error(
    status: int, code: int, message: str, headers: Mapping[str, str] | None = None
) -> Answer:
    body = json.dumps({"error_code": code, "message": message}).encode()
    return Answer(status, body, headers=headers)


_CLOSE: Final = {"connection": "close"}
