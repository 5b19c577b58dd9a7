"""Fetch: returns spans of segment files up to the high watermark, at once or after a long poll.

A fetch with less than `minBytes` waits in the purgatory of its partitions until a high watermark
advances or `maxWaitMs` has passed. Each time all its partitions are read again: those of some
fetches per turn, and if one has many partitions and still too little, after a pause.

Many partitions are read in several turns. A large request is decoded, and the response for many
partitions encoded, on another thread.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from logbroker.errors import FetchSessionNotFound
from logbroker.quotas.meters import ClientMeters, milliseconds
from logbroker.server.authorization.access import Access
from logbroker.server.connection import Connection
from logbroker.server.fetch_purgatory import DelayedFetch, FetchPurgatory
from logbroker.server.fetch_read import RESPONSE_BYTES_MAX, FetchReader, ReadResult
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partition, Partitions
from logbroker.server.worker_pool import WorkerPool
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import NONE, code_of
from logbroker.wire.fetch import (
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchOutcome,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_response,
)
from logbroker.wire.response_queue import PendingResponse, ResponseParts

T = TypeVar("T")

FETCH_KEY: Final = int(ApiKey.FETCH)

FULL_FETCH_EPOCHS: Final = (0, NO_SESSION_EPOCH)

WAIT_MS_MAX: Final = 5 * 60_000
"""The maximum of a request's `maxWaitMs`; longer values are reduced to it."""

LARGE_BYTES: Final = 8 * 1024
"""A larger request, of some hundred partitions, is decoded on another thread."""

MANY_PARTITIONS: Final = 200
"""A fetch of more is not read again at every advance of a high watermark, nor in one turn."""

PARTITIONS_PER_TURN: Final = MANY_PARTITIONS
"""After so many partitions, others wait for the next turn; reading them takes about 3 ms.

It holds for all delayed fetches together, and for all requests that are read in parts.
"""

READ_PAUSE_S: Final = 0.0001
"""The pause between two reads of such a fetch, per partition: some times of what they take."""


@dataclass(slots=True)
class PartialRead:
    """A request of which the partitions before `position` are read; `done` gets the result."""

    connection: Connection
    request: FetchRequest
    result: ReadResult
    done: Callable[[ReadResult], None]
    position: int = 0


def _has_many_partitions(request: FetchRequest) -> bool:
    return len(request.partitions) > MANY_PARTITIONS


class FetchHandler:
    """Handles Fetch requests, and completes delayed ones when a high watermark advances."""

    def __init__(
        self,
        loop: SocketLoop,
        partitions: Partitions,
        access: Access,
        counters: Counters,
        pool: WorkerPool,
    ) -> None:
        self._loop = loop
        self._reader = FetchReader(access, partitions)
        self._pool = pool
        self._counters = counters
        self._seconds = counters.request_seconds[FETCH_KEY]
        self._purgatory = FetchPurgatory()
        self._reads: deque[PartialRead] = deque()
        """Requests that are read in parts, in turn."""
        self._is_reading = False
        """Whether the next turn reads a part."""
        self._due: dict[DelayedFetch, None] = {}
        """Delayed fetches to read again, the longest due first."""
        self._continues = False
        """Whether the next turn reads some of them."""
        self._turn_s = 0.0
        self._partitions_left = 0
        """What may still be read of them in the turn at `_turn_s`."""

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        """Complete the request at `view[start:end]`, or delay it.

        Returns whether it is held, until `release_frames`: the caller must hold the later frames.
        """
        if end - start > LARGE_BYTES:
            self._counters.requests[FETCH_KEY] += 1
            self._decode_elsewhere(connection, connection.responses.add(), view[start:end])
            return True
        request = decode_fetch_request(view, start, end)
        self._counters.requests[FETCH_KEY] += 1
        response = connection.responses.add()
        if self._is_refused(response, request):
            return False
        request = self._within_quota(connection, request)
        self._answer(connection, response, request, self._reader.read(connection, request))
        return False

    def _decode_elsewhere(
        self, connection: Connection, response: PendingResponse, frame: memoryview
    ) -> None:
        """Handle a large request, and release the later frames once its partitions are read."""
        copy = memoryview(bytes(frame))

        def decoded(request: FetchRequest) -> None:
            if not connection.is_open:
                return
            if self._is_refused(response, request):
                finish()
                return
            wanted = self._within_quota(connection, request)
            self._read_in_parts(connection, wanted, partial(read, wanted))

        def read(request: FetchRequest, result: ReadResult) -> None:
            self._answer(connection, response, request, result)
            finish()

        def finish() -> None:
            connection.release_frames()
            connection.send()

        self._run_elsewhere(connection, lambda: decode_fetch_request(copy, 0, len(copy)), decoded)

    def _run_elsewhere(
        self, connection: Connection, work: Callable[[], T], done: Callable[[T], None]
    ) -> None:
        """Run `work` for a request on another thread, then `done` on this one."""

        def finished(result: T | Exception) -> None:
            if isinstance(result, Exception):
                connection.fail_request(result)
            else:
                done(result)

        self._pool.submit_metered(work, connection.count_work, finished)

    def _is_refused(self, response: PendingResponse, request: FetchRequest) -> bool:
        """Complete a request of a session, which does not exist; returns whether it was one."""
        if request.session_id == NO_SESSION and request.session_epoch in FULL_FETCH_EPOCHS:
            return False
        code = code_of(FetchSessionNotFound(f"unknown fetch session {request.session_id}"))
        self._counters.count_error(FETCH_KEY, code)
        response.complete(encode_fetch_response(request, [], error_code=code))
        return True

    def _within_quota(self, connection: Connection, request: FetchRequest) -> FetchRequest:
        if connection.meters is None:
            return request
        bytes_max = connection.meters.fetch_bytes_max(request.max_bytes)
        return request._replace(max_bytes=bytes_max)

    def _answer(
        self,
        connection: Connection,
        response: PendingResponse,
        request: FetchRequest,
        result: ReadResult,
    ) -> None:
        if self._is_complete(request, result):
            self._complete(connection, response, request, result, self._loop.now_s)
        else:
            self._delay(connection, response, request, result)

    def _read_in_parts(
        self, connection: Connection, request: FetchRequest, done: Callable[[ReadResult], None]
    ) -> None:
        """Read some partitions per turn, then call `done`, unless the connection is closed."""
        self._reads.append(PartialRead(connection, request, self._reader.start(request), done))
        self._read_soon()

    def _read_soon(self) -> None:
        if self._reads and not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._read_part)

    def _read_part(self) -> None:
        """Read some partitions of the request that has waited longest."""
        self._is_reading = False
        read = self._reads.popleft()
        if read.connection.is_open:
            began_s = time.monotonic()
            try:
                self._continue(read)
            except Exception as error:
                read.connection.fail_request(error)
            read.connection.count_work(time.monotonic() - began_s)
        self._read_soon()

    def _continue(self, read: PartialRead) -> None:
        start, end = read.position, read.position + PARTITIONS_PER_TURN
        wanted = read.request.partitions
        self._reader.read_more(read.connection, wanted[start:end], read.result)
        if end < len(wanted):
            read.position = end
            self._reads.append(read)
        else:
            read.done(read.result)

    def complete_fetches(self, partition: Partition) -> list[Connection]:
        """Complete fetches after the high watermark advanced; returns connections to send on."""
        self._due.update(dict.fromkeys(self._purgatory.find(partition)))
        return self._complete_due()

    def close_partition(self, partition: Partition) -> list[Connection]:
        """Complete every fetch of a closed partition; returns connections to send on."""
        fetches = self._purgatory.find(partition)
        for fetch in fetches:
            self._complete_now(fetch)
        return [fetch.connection for fetch in fetches]

    def _delay(
        self,
        connection: Connection,
        response: PendingResponse,
        request: FetchRequest,
        result: ReadResult,
    ) -> None:
        now_s = self._loop.now_s
        due_s = now_s + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        timer = self._loop.call_at(due_s, lambda: self._expire(fetch))
        fetch = DelayedFetch(
            connection, response, request, result.partitions, timer, now_s, self._purgatory
        )
        connection.delayed.add(fetch)
        self._purgatory.add(fetch)
        if _has_many_partitions(request):
            self._read_changed(fetch, result)

    def _complete_due(self) -> list[Connection]:
        """Complete due fetches that are ready, some per turn; returns connections to send on."""
        if self._turn_s != self._loop.now_s:
            self._turn_s, self._partitions_left = self._loop.now_s, PARTITIONS_PER_TURN
        completed = []
        while self._due and self._partitions_left > 0:
            fetch = next(iter(self._due))
            del self._due[fetch]
            if not fetch.is_over and self._complete_if_ready(fetch):
                completed.append(fetch.connection)
        if self._due and not self._continues:
            self._continues = True
            self._loop.call_soon(self._send_due)
        return completed

    def _send_due(self) -> None:
        self._continues = False
        for connection in self._complete_due():
            connection.send()

    def _complete_if_ready(self, fetch: DelayedFetch) -> bool:
        """Read the partitions of a fetch again, now or after a pause; returns if it is complete."""
        now_s = self._loop.now_s
        if now_s < fetch.next_read_s:
            if fetch.next_read is None:
                fetch.next_read = self._loop.call_at(
                    fetch.next_read_s, lambda: self._read_after_pause(fetch)
                )
            return False
        if _has_many_partitions(fetch.request):
            self._read_again(fetch)
            return False
        self._partitions_left -= len(fetch.partitions)
        result = self._reader.read(fetch.connection, fetch.request)
        if self._is_complete(fetch.request, result):
            self._complete_delayed(fetch, result)
            return True
        return False

    def _read_after_pause(self, fetch: DelayedFetch) -> None:
        fetch.next_read = None
        if self._complete_if_ready(fetch):
            fetch.connection.send()

    def _read_again(self, fetch: DelayedFetch) -> None:
        """Read the many partitions of a fetch again, in parts, then pause."""
        fetch.next_read_s = self._loop.now_s + len(fetch.partitions) * READ_PAUSE_S
        if not fetch.is_being_read:
            fetch.is_being_read = True
            self._read_in_parts(
                fetch.connection, fetch.request, partial(self._finish_reading, fetch)
            )

    def _finish_reading(self, fetch: DelayedFetch, result: ReadResult) -> None:
        fetch.is_being_read = False
        if fetch.is_over:
            return
        if fetch.completes_when_read or self._is_complete(fetch.request, result):
            self._complete_delayed(fetch, result)
            fetch.connection.send()
        else:
            self._read_changed(fetch, result)

    def _read_changed(self, fetch: DelayedFetch, result: ReadResult) -> None:
        """Read a fetch again if any partition has changed since the turn that read it."""
        if not all(partition.is_open for partition in result.partitions):
            self._complete_now(fetch)
        elif any(
            outcome.high_watermark != partition.log.high_watermark
            for outcome, partition in zip(result.outcomes, result.partitions, strict=True)
        ):
            self._complete_if_ready(fetch)

    def _complete_now(self, fetch: DelayedFetch) -> None:
        """Complete a fetch with what there is; one of many partitions in some turns."""
        fetch.completes_when_read = True
        if _has_many_partitions(fetch.request):
            self._read_again(fetch)
        else:
            self._complete_delayed(fetch, self._reader.read(fetch.connection, fetch.request))

    def _expire(self, fetch: DelayedFetch) -> None:
        self._complete_now(fetch)
        fetch.connection.send()

    def _complete_delayed(self, fetch: DelayedFetch, result: ReadResult) -> None:
        fetch.abandon()
        self._complete(fetch.connection, fetch.response, fetch.request, result, fetch.began_s)

    def _complete(
        self,
        connection: Connection,
        response: PendingResponse,
        request: FetchRequest,
        result: ReadResult,
        began_s: float,
    ) -> None:
        throttle_ms = 0
        if connection.meters is not None:
            throttle_ms, result = self._throttle(connection, connection.meters, result)
        self._encode(connection, response, request, result.outcomes, throttle_ms)
        for traffic, span, offset in result.reads:
            traffic.bytes_out += span.length
            traffic.messages_out += span.next_offset - offset
        if result.has_error:
            codes = Counter(outcome.error_code for outcome in result.outcomes)
            for code in codes.keys() - {NONE}:
                self._counters.count_error(FETCH_KEY, code, codes[code])
        self._seconds.observe(time.monotonic() - began_s)

    def _throttle(
        self, connection: Connection, meters: ClientMeters, result: ReadResult
    ) -> tuple[int, ReadResult]:
        """Return the throttle time; a client above its quotas gets an empty result (KIP-219)."""
        now_s = self._loop.now_s
        is_admitted, throttle_s = meters.admit_fetch(result.size, now_s)
        throttle_s = max(throttle_s, meters.request_throttle_s(now_s))
        if throttle_s > 0:
            connection.mute(throttle_s)
        return milliseconds(throttle_s), result if is_admitted else ReadResult(0, [], [], [])

    def _encode(
        self,
        connection: Connection,
        response: PendingResponse,
        request: FetchRequest,
        outcomes: list[FetchOutcome],
        throttle_ms: int,
    ) -> None:
        """Encode the response; for many partitions on another thread, which then sends it."""
        if len(outcomes) <= MANY_PARTITIONS:
            response.complete(encode_fetch_response(request, outcomes, throttle_ms=throttle_ms))
            return

        def encoded(parts: ResponseParts) -> None:
            response.complete(parts)
            connection.send()

        encode = partial(encode_fetch_response, request, outcomes, throttle_ms=throttle_ms)
        self._run_elsewhere(connection, encode, encoded)

    def _is_complete(self, request: FetchRequest, result: ReadResult) -> bool:
        return (
            result.has_error
            or result.size >= min(request.min_bytes, request.max_bytes, RESPONSE_BYTES_MAX)
            or request.max_wait_ms <= 0
            or not result.partitions
            or self._has_later_segment(request, result)
        )

    def _has_later_segment(self, request: FetchRequest, result: ReadResult) -> bool:
        """Return whether a read ended with its segment and the next fetch continues after it."""
        if not result.reads:
            return False
        pairs = zip(result.partitions, request.partitions, strict=True)
        return any(
            partition.log.is_before_last_segment(wanted.fetch_offset) for partition, wanted in pairs
        )
