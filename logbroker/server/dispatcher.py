"""Passes each request to its handler."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from logbroker.quotas.entities import NAME_CHARS_MAX
from logbroker.quotas.meters import ClientMeters, QuotaMeters, milliseconds
from logbroker.server.authorization.access import Client
from logbroker.server.authorization.cluster_guards import Guards
from logbroker.server.authorization.guards import Finish, Forbidden, Verdict
from logbroker.server.connection import Connection
from logbroker.server.fetch import FetchHandler
from logbroker.server.handlers.cluster import CachedMetadata, ThrottledMetadata
from logbroker.server.handlers.lazy_response import LazyResponse
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

T = TypeVar("T")

Handler = Callable[[Any], Any]
"""Returns the response to a request; both are kafka-python messages."""

AsyncHandler = Callable[[Any, Connection, Callable[[Any], None]], None]
"""Handles a request of a connection and passes the response to the callback.

It calls the callback once, on the loop's thread, immediately or minutes later.
"""

Preparation = Callable[[Any], Any]
"""Returns what the handler of an API gets instead of the request; safe on any thread."""

PRODUCE_KEY: Final = int(ApiKey.PRODUCE)
FETCH_KEY: Final = int(ApiKey.FETCH)

LARGE_BYTES: Final = 2 * 1024
"""Larger requests are decoded and checked on another thread: 200 items take milliseconds."""

SIZE_BYTES: Final = 4
"""The size prefix of a frame."""

_CLIENT_ID_OFFSET: Final = 8
_NULL_SIZE: Final = 2**15
"""As unsigned numbers, the sizes from here on are negative: they mean null."""

BY_VIEW: Final = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CONFIGS})
"""Requests that need only the cluster's view, which is immutable: any thread may handle them."""

REQUESTS_PER_TURN: Final = 16
"""The maximum of requests other than Produce that one connection gets handled per turn: one read
may contain hundreds, and some take milliseconds each."""

REQUEST_BYTES: Final = 512
"""A larger request, such as a Fetch of many partitions, counts as several of these."""


class RequestHandlers(NamedTuple):
    """The handlers of all APIs but Produce and Fetch.

    `immediate` handlers run on the loop's thread, `blocking` handlers on a pool, since they may
    read the disk or answer a small request with much of the cluster's view, and `asynchronous`
    handlers wait for the registry or for members of a group. `preparations` come before a handler,
    and for large requests run on another thread.
    """

    immediate: dict[ApiKey, Handler]
    blocking: dict[ApiKey, Handler]
    asynchronous: dict[ApiKey, AsyncHandler]
    preparations: dict[ApiKey, Preparation]


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
        meters: QuotaMeters,
        read_pool: WorkerPool,
        loop: SocketLoop,
        counters: Counters,
    ) -> None:
        self.touched: set[Connection] = set()
        self._produce = produce
        self._fetch = fetch
        self._handlers = handlers
        self._guards = guards
        self._meters = meters
        self._throttle_s = 0.0
        """The throttle time of the request that is being dispatched."""
        self._read_pool = read_pool
        self._waiting: dict[Connection, deque[Callable[[], None]]] = {}
        """Calls that wait for the one of the same connection that runs on the pool."""
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
            if connection.is_holding:
                return
            if connection.is_muted:
                connection.postpone_frames(end + SIZE_BYTES)
                return

    def _dispatch_admitted(
        self, connection: Connection, view: memoryview, frames: list[tuple[int, int]]
    ) -> None:
        if self._meters.is_active and frames:
            # A client has one id: the first request of a read stands for all.
            client_id = _client_id(view, frames[0][0])
            user, now_s = connection.principal.name, self._loop.now_s
            connection.meters = self._meters.find(user, client_id, now_s)
            if connection.meters is not None:
                self._dispatch_metered(connection, connection.meters, view, frames)
                return
        self._dispatch_frames(connection, view, frames)

    def _dispatch_metered(
        self,
        connection: Connection,
        meters: ClientMeters,
        view: memoryview,
        frames: list[tuple[int, int]],
    ) -> None:
        """Handle the frames of a client with quotas; those after a throttled one wait."""
        for number, (start, end) in enumerate(frames):
            if number == REQUESTS_PER_TURN:
                connection.postpone_frames(start)
                break
            began_s, now_s = time.monotonic(), self._loop.now_s
            api_key = view[start] << 8 | view[start + 1]
            if api_key == PRODUCE_KEY:
                throttle_s = meters.request_throttle_s(now_s)
                throttle_s = max(throttle_s, meters.record_produce(end - start, now_s))
                if self._produce.handle(connection, view, start, end):
                    connection.hold_frames(end + SIZE_BYTES)
                if throttle_s > 0:
                    api_version = view[start + 2] << 8 | view[start + 3]
                    self._produce.throttle_run(api_version, milliseconds(throttle_s))
            else:
                # A Fetch is throttled when it is answered.
                throttle_s = 0.0 if api_key == FETCH_KEY else meters.request_throttle_s(now_s)
                self._throttle_s = throttle_s
                self._dispatch_frames(connection, view, [(start, end)])
                self._throttle_s = 0.0
            if throttle_s > 0:
                connection.mute(throttle_s)
            meters.record_request(time.monotonic() - began_s, now_s)
            if connection.is_holding:
                break
            if connection.is_muted:
                connection.postpone_frames(end + SIZE_BYTES)
                break
        self._produce.end_run()

    def _dispatch_frames(
        self, connection: Connection, view: memoryview, frames: list[tuple[int, int]]
    ) -> None:
        handled = 0
        for start, end in frames:
            api_key = view[start] << 8 | view[start + 1]
            if api_key == PRODUCE_KEY:
                if self._produce.handle(connection, view, start, end):
                    connection.hold_frames(end + SIZE_BYTES)
                    break
                continue
            self._produce.end_run()
            if handled >= REQUESTS_PER_TURN:
                connection.postpone_frames(start)
                break
            handled += 1 + (end - start) // REQUEST_BYTES
            if api_key == FETCH_KEY:
                if self._fetch.handle(connection, view, start, end):
                    connection.hold_frames(end + SIZE_BYTES)
                    break
            elif end - start > LARGE_BYTES and api_key != ApiKey.API_VERSIONS:
                connection.hold_frames(end + SIZE_BYTES)
                self._handle_large(connection, view[start:end])
                break
            else:
                self._handle_other(connection, view[start:end])
        self._produce.end_run()

    def _handle_large(self, connection: Connection, frame: memoryview) -> None:
        """Decode and check a request, and encode its response, on other threads: both take long.

        Later requests of the connection wait until this one is handled.
        """
        header, body = read_request_header(frame)
        connection.client_id = header.client_id
        self._counters.requests[header.api_key] += 1
        answer = self._add_answer(connection, header)
        copy = memoryview(bytes(frame))

        def decoded(checked: _CheckedRequest | Exception) -> None:
            if not connection.is_open:
                return
            try:
                if isinstance(checked, Exception):
                    raise checked
                if header.api_key in BY_VIEW:
                    self._run_elsewhere(
                        connection,
                        lambda: self._handle_checked(answer, checked, is_large=True),
                        answer.fail_if_error,
                    )
                else:
                    self._handle_checked(answer, checked, is_large=True)
            except Exception as error:
                connection.fail_request(error)
            connection.release_frames()

        self._read_pool.submit(
            lambda: self._check(answer, decode_message(header, copy, body)), decoded
        )

    def _handle_other(self, connection: Connection, frame: memoryview) -> None:
        header, body = read_request_header(frame)
        connection.client_id = header.client_id
        self._counters.requests[header.api_key] += 1
        if header.api_key == ApiKey.API_VERSIONS:
            answer = self._add_answer(connection, header)
            answer.response.complete([encode_api_versions_response(header, frame, body)])
            self._count_response(answer, Counter())
            return
        request = decode_message(header, frame, body)
        answer = self._add_answer(connection, header)
        if self._guards.is_expensive(ApiKey(header.api_key), request):
            self._run_elsewhere(
                connection,
                lambda: self._handle_checked(answer, self._check(answer, request), is_large=True),
                answer.fail_if_error,
            )
        else:
            self._handle_checked(answer, self._check(answer, request), is_large=False)

    def _add_answer(self, connection: Connection, header: RequestHeader) -> "_Answer":
        throttle_ms = milliseconds(self._throttle_s)
        response = connection.responses.add()
        return _Answer(connection, response, header, self._loop.now_s, throttle_ms)

    def _check(self, answer: "_Answer", request: Any) -> "_CheckedRequest":
        """Remove what the client may not do from a request, and prepare the rest."""
        connection, api_key = answer.connection, ApiKey(answer.header.api_key)
        client = Client(connection.principal, connection.client_host)
        verdict = self._guards.check(api_key, client, request)
        prepare = self._handlers.preparations.get(api_key)
        if prepare is not None and not isinstance(verdict, Forbidden):
            request = prepare(request)
        return _CheckedRequest(request, verdict)

    def _handle_checked(
        self, answer: "_Answer", checked: "_CheckedRequest", *, is_large: bool
    ) -> None:
        """Handle a request on the current thread."""
        connection, api_key = answer.connection, ApiKey(answer.header.api_key)
        request, verdict = checked
        finish = None if isinstance(verdict, Forbidden) else verdict

        def respond(message: Any) -> None:
            if isinstance(message, LazyResponse):
                self._encode_elsewhere(answer, message.build, finish)
            elif is_large or _is_expensive(message, answer.header):
                self._encode_elsewhere(answer, lambda: message, finish)
            else:
                self._respond(answer, _finished(message, finish))

        if isinstance(verdict, Forbidden):
            respond(verdict.message)
        elif (blocking := self._handlers.blocking.get(api_key)) is not None:
            self._encode_elsewhere(answer, lambda: blocking(request), finish)
        elif (handler := self._handlers.asynchronous.get(api_key)) is not None:
            handler(request, connection, respond)
        else:
            respond(self._handlers.immediate[api_key](request))

    def _respond(self, answer: "_Answer", message: Any) -> None:
        answer.response.complete([answer.encode(message)])
        self._count_response(answer, _error_codes(message, answer.header))
        # The end of the current turn sends it.
        self.touched.add(answer.connection)

    def _encode_elsewhere(
        self, answer: "_Answer", call: Callable[[], Any], finish: Finish | None
    ) -> None:
        """Encode the response that `call` returns on another thread, then send it."""
        header = answer.header

        def work() -> tuple[bytes, Counter[int], float]:
            began_s = time.monotonic()
            message = _finished(call(), finish)
            codes = _error_codes(message, header)
            return answer.encode(message), codes, time.monotonic() - began_s

        def done(result: tuple[bytes, Counter[int], float] | Exception) -> None:
            if isinstance(result, Exception):
                answer.connection.fail_request(result)
                return
            encoded, codes, seconds = result
            answer.connection.count_work(seconds)
            answer.response.complete([encoded])
            self._count_response(answer, codes)
            answer.connection.send()

        # The current thread may be one of the pool.
        self._loop.call_soon(lambda: self._run_elsewhere(answer.connection, work, done))

    def _run_elsewhere(
        self, connection: Connection, call: Callable[[], T], done: Callable[[T | Exception], None]
    ) -> None:
        """Run a call on the pool after the earlier ones of its connection.

        So clients share the threads, however many requests one of them sends at once.
        """

        def finished(result: T | Exception) -> None:
            done(result)
            waiting = self._waiting[connection]
            if waiting and connection.is_open:
                waiting.popleft()()
            else:
                del self._waiting[connection]

        start = partial(self._read_pool.submit, call, finished)
        if connection in self._waiting:
            self._waiting[connection].append(start)
        else:
            self._waiting[connection] = deque()
            start()

    def _count_response(self, answer: "_Answer", codes: Counter[int]) -> None:
        api_key = answer.header.api_key
        self._counters.request_seconds[api_key].observe(time.monotonic() - answer.began_s)
        for code, times in codes.items():
            self._counters.count_error(api_key, code, times)


class _CheckedRequest(NamedTuple):
    """What the handler of a request gets, and the verdict of its guard."""

    request: Any
    verdict: Verdict


class _Answer(NamedTuple):
    """The response to one request, which is pending."""

    connection: Connection
    response: PendingResponse
    header: RequestHeader
    began_s: float
    throttle_ms: int

    def encode(self, message: Any) -> bytes:
        """Return the encoded response with at least the throttle time of the request."""
        if self.throttle_ms:
            if isinstance(message, CachedMetadata):
                message = ThrottledMetadata(message, self.throttle_ms)
            elif hasattr(message, "throttle_time_ms"):
                message.throttle_time_ms = max(message.throttle_time_ms or 0, self.throttle_ms)
        return encode_message(self.header, message)

    def fail_if_error(self, result: object) -> None:
        """Close the connection if `result` is the error of a call on another thread."""
        if isinstance(result, Exception):
            self.connection.fail_request(result)


def _client_id(view: memoryview, start: int) -> str:
    """Return the client id of the request at `start`, truncated; empty if it has none."""
    position = start + _CLIENT_ID_OFFSET
    size = view[position] << 8 | view[position + 1]
    if size >= _NULL_SIZE:
        return ""
    position += 2
    return str(view[position : position + min(size, NAME_CHARS_MAX)], "utf-8", "replace")


def _is_expensive(message: Any, header: RequestHeader) -> bool:
    return isinstance(message, CachedMetadata) and message.is_expensive(header.api_version)


def _finished(message: Any, finish: Finish | None) -> Any:
    return message if finish is None else finish(message)


def _error_codes(response: Any, header: RequestHeader) -> Counter[int]:
    if isinstance(response, CachedMetadata):
        return response.error_codes(header.api_version)
    return error_codes(response, header.api_version)
