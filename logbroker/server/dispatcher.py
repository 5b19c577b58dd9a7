"""Passes each request to its handler."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from logbroker.server.authorization.access import Client
from logbroker.server.authorization.cluster_guards import Guards
from logbroker.server.authorization.guards import Finish, Forbidden
from logbroker.server.connection import Connection
from logbroker.server.fetch import FetchHandler
from logbroker.server.handlers.cluster import CachedMetadata
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.produce import ProduceHandler
from logbroker.server.worker_pool import WorkerPool
from logbroker.wire.api_versions import encode_api_versions_response
from logbroker.wire.apis import ApiKey
from logbroker.wire.messages import decode_message, encode_message
from logbroker.wire.request import RequestHeader, read_request_header
from logbroker.wire.response_queue import PendingResponse
from logbroker.wire.schema import error_codes

log = logging.getLogger("logbroker.dispatcher")

Handler = Callable[[Any], Any]
"""Returns the response to a request; both are kafka-python messages."""

AsyncHandler = Callable[[Any, Connection, Callable[[Any], None]], None]
"""Handles a request of a connection and passes the response to the callback.

It calls the callback once, on the loop's thread, immediately or minutes later.
"""

PRODUCE_KEY: Final = int(ApiKey.PRODUCE)
FETCH_KEY: Final = int(ApiKey.FETCH)

REQUESTS_PER_TURN: Final = 16
"""The maximum of requests other than Produce that one connection gets handled per turn: one read
may contain hundreds, and some take milliseconds each."""


class RequestHandlers(NamedTuple):
    """The handlers of all APIs but Produce and Fetch.

    `immediate` handlers run on the loop's thread, `blocking` handlers on a pool, since they may
    read the disk, and `asynchronous` handlers wait for the registry or for members of a group.
    """

    immediate: dict[ApiKey, Handler]
    blocking: dict[ApiKey, Handler]
    asynchronous: dict[ApiKey, AsyncHandler]


class RequestDispatcher:
    """Passes each frame to its handler and collects the connections with work at the turn's end.

    `guards` remove what the client may not do from each request. Blocking handlers run on
    `read_pool`.
    """

    def __init__(
        self,
        produce: ProduceHandler,
        fetch: FetchHandler,
        handlers: RequestHandlers,
        guards: Guards,
        read_pool: WorkerPool,
        loop: SocketLoop,
        counters: Counters,
    ) -> None:
        self.touched: set[Connection] = set()
        self._produce = produce
        self._fetch = fetch
        self._handlers = handlers
        self._guards = guards
        self._read_pool = read_pool
        self._loop = loop
        self._counters = counters

    def dispatch(self, connection: Connection, frames: list[tuple[int, int]]) -> None:
        """Handle the frames of one read; the broker finishes `touched` connections."""
        self.touched.add(connection)
        view = connection.buffer.view()
        if connection.gate is None or not connection.gate.is_closed_to(view, frames):
            self._dispatch_admitted(connection, view, frames)
            return
        for start, end in frames:
            # The gate opens, or goes, between two frames of one read.
            if connection.gate is None or connection.gate.admit(view[start:end]):
                self._dispatch_admitted(connection, view, [(start, end)])

    def _dispatch_admitted(
        self, connection: Connection, view: memoryview, frames: list[tuple[int, int]]
    ) -> None:
        handled = 0
        for start, end in frames:
            api_key = view[start] << 8 | view[start + 1]
            if api_key == PRODUCE_KEY:
                self._produce.handle(connection, view, start, end)
                continue
            self._produce.end_run()
            if handled == REQUESTS_PER_TURN:
                connection.postpone_frames(start)
                break
            handled += 1
            if api_key == FETCH_KEY:
                self._fetch.handle(connection, view, start, end)
            else:
                self._handle_other(connection, view[start:end])
        self._produce.end_run()

    def _handle_other(self, connection: Connection, frame: memoryview) -> None:
        header, body = read_request_header(frame)
        connection.client_id = header.client_id
        self._counters.requests[header.api_key] += 1
        if header.api_key == ApiKey.API_VERSIONS:
            connection.responses.add().complete([encode_api_versions_response(header, frame, body)])
            self._count_response(header, self._loop.now_s, Counter())
            return
        request = decode_message(header, frame, body)
        api_key = ApiKey(header.api_key)
        client = Client(connection.principal, connection.client_host)
        verdict = self._guards.check(api_key, client, request)
        if isinstance(verdict, Forbidden):
            self._respond(connection.responses.add(), header, verdict.message, self._loop.now_s)
        elif (blocking := self._handlers.blocking.get(api_key)) is not None:
            self._handle_blocking(connection, header, lambda: blocking(request), verdict)
        elif (async_handler := self._handlers.asynchronous.get(api_key)) is not None:
            self._handle_async(connection, header, request, async_handler, verdict)
        else:
            message = _finished(self._handlers.immediate[api_key](request), verdict)
            self._respond(connection.responses.add(), header, message, self._loop.now_s)

    def _respond(
        self, response: PendingResponse, header: RequestHeader, message: Any, began_s: float
    ) -> None:
        response.complete([encode_message(header, message)])
        self._count_response(header, began_s, _error_codes(message, header))

    def _handle_blocking(
        self,
        connection: Connection,
        header: RequestHeader,
        call: Callable[[], Any],
        finish: Finish | None,
    ) -> None:
        response, began_s = connection.responses.add(), self._loop.now_s

        def work() -> tuple[bytes, Counter[int]]:
            message = _finished(call(), finish)
            return encode_message(header, message), _error_codes(message, header)

        def done(result: tuple[bytes, Counter[int]] | Exception) -> None:
            if isinstance(result, Exception):
                log.error("%s failed", ApiKey(header.api_key).name, exc_info=result)
                connection.close("internal error")
                return
            encoded, codes = result
            response.complete([encoded])
            self._count_response(header, began_s, codes)
            connection.send()

        self._read_pool.submit(work, done)

    def _handle_async(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Any,
        handler: AsyncHandler,
        finish: Finish | None,
    ) -> None:
        response, began_s = connection.responses.add(), self._loop.now_s

        def respond(message: Any) -> None:
            self._respond(response, header, _finished(message, finish), began_s)
            # The end of the current turn sends it.
            self.touched.add(connection)

        handler(request, connection, respond)

    def _count_response(self, header: RequestHeader, began_s: float, codes: Counter[int]) -> None:
        self._counters.request_seconds[header.api_key].observe(time.monotonic() - began_s)
        for code, times in codes.items():
            self._counters.count_error(header.api_key, code, times)


def _finished(message: Any, finish: Finish | None) -> Any:
    return message if finish is None else finish(message)


def _error_codes(response: Any, header: RequestHeader) -> Counter[int]:
    if isinstance(response, CachedMetadata):
        return response.error_codes(header.api_version)
    return error_codes(response, header.api_version)
