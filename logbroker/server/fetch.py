"""Fetch: returns spans of segment files up to the high watermark, at once or after a long poll.

A fetch with less than `minBytes` waits in the purgatory of its partitions until a high watermark
advances or `maxWaitMs` has passed. Each time all its partitions are read again: those of some
fetches per turn, and if one has many partitions and still too little, after a pause.
"""

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from logbroker.errors import FetchSessionNotFound, RequestRefused, StorageFailed
from logbroker.quotas.meters import ClientMeters, milliseconds
from logbroker.records.file_span import LogSpan
from logbroker.security.acl import AclOperation
from logbroker.server.authorization.access import Access, Client
from logbroker.server.connection import Connection
from logbroker.server.loop import SocketLoop, Timer
from logbroker.server.metrics.counters import Counters, TopicTraffic
from logbroker.server.partition import Partition, Partitions
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import code_of
from logbroker.wire.fetch import (
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchOutcome,
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_response,
)
from logbroker.wire.response_queue import PendingResponse, ResponseParts

FETCH_KEY: Final = int(ApiKey.FETCH)

FULL_FETCH_EPOCHS: Final = (0, NO_SESSION_EPOCH)
NO_OFFSET: Final = -1
NO_TOPIC_ID: Final = UUID(int=0)

WAIT_MS_MAX: Final = 5 * 60_000
"""The maximum of a request's `maxWaitMs`; longer values are reduced to it."""

RESPONSE_BYTES_MAX: Final = 55 * 2**20
"""The size limit of a response: the default of Kafka's broker setting `fetch.max.bytes`."""


PARTITIONS_PER_TURN: Final = 500
"""After so many partitions of delayed fetches were read, the others wait for the next turn."""

MANY_PARTITIONS: Final = 200
"""A fetch of more is not read again at every advance of a high watermark."""

READ_PAUSE_S: Final = 0.0001
"""The pause between two reads of such a fetch, per partition: ten times of what they take."""


@dataclass(eq=False, slots=True)
class DelayedFetch:
    """A fetch in the purgatory; `purgatory` is that of the handler."""

    connection: Connection
    response: PendingResponse
    request: FetchRequest
    partitions: list[Partition]
    timer: Timer
    began_s: float
    purgatory: "FetchPurgatory"
    next_read_s: float = 0.0
    next_read: Timer | None = None
    is_over: bool = False

    def abandon(self) -> None:
        """Leave the purgatory, answered or disconnected."""
        self.is_over = True
        self.timer.cancel()
        if self.next_read is not None:
            self.next_read.cancel()
        self.connection.delayed.discard(self)
        self.purgatory.remove(self)


class FetchPurgatory:
    """The delayed fetches of each partition."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, set[DelayedFetch]] = {}

    def add(self, fetch: DelayedFetch) -> None:
        """Let `fetch` wait for each of its partitions."""
        for partition in fetch.partitions:
            self._by_partition.setdefault(partition, set()).add(fetch)

    def remove(self, fetch: DelayedFetch) -> None:
        """Remove `fetch`; removing it twice does nothing."""
        for partition in fetch.partitions:
            if fetches := self._by_partition.get(partition):
                fetches.discard(fetch)
                if not fetches:
                    del self._by_partition[partition]

    def find(self, partition: Partition) -> list[DelayedFetch]:
        """Return the fetches that wait for `partition`."""
        return list(self._by_partition.get(partition, ()))


@dataclass(slots=True)
class ReadResult:
    """The result of reading all partitions of a request."""

    outcomes: list[FetchOutcome]
    partitions: list[Partition]
    reads: list[tuple[TopicTraffic, LogSpan, int]]
    """Traffic, span and fetch offset of each partition with records."""
    size: int = 0
    has_error: bool = False


class FetchHandler:
    """Handles Fetch requests, and completes delayed ones when a high watermark advances."""

    def __init__(
        self, loop: SocketLoop, partitions: Partitions, access: Access, counters: Counters
    ) -> None:
        self._loop = loop
        self._access = access
        self._partitions = partitions
        self._counters = counters
        self._seconds = counters.request_seconds[FETCH_KEY]
        self._purgatory = FetchPurgatory()
        self._due: dict[DelayedFetch, None] = {}
        """Delayed fetches to read again, the longest due first."""
        self._continues = False
        """Whether the next turn reads some of them."""
        self._turn_s = 0.0
        self._partitions_left = 0
        """What may still be read of them in the turn at `_turn_s`."""

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Complete the request at `view[start:end]`, or delay it."""
        request = decode_fetch_request(view, start, end)
        self._counters.requests[FETCH_KEY] += 1
        response = connection.responses.add()
        if request.session_id != NO_SESSION or request.session_epoch not in FULL_FETCH_EPOCHS:
            code = code_of(FetchSessionNotFound(f"unknown fetch session {request.session_id}"))
            self._counters.count_error(FETCH_KEY, code)
            response.complete(encode_fetch_response(request, [], error_code=code))
            return
        if connection.meters is not None:
            bytes_max = connection.meters.fetch_bytes_max(request.max_bytes)
            request = request._replace(max_bytes=bytes_max)
        result = self._read_all(connection, request)
        if self._is_complete(request, result):
            self._complete(connection, response, request, result, self._loop.now_s)
        else:
            self._delay(connection, response, request, result.partitions)

    def complete_fetches(self, partition: Partition) -> list[Connection]:
        """Complete fetches after the high watermark advanced; returns connections to send on."""
        self._due.update(dict.fromkeys(self._purgatory.find(partition)))
        return self._complete_due()

    def close_partition(self, partition: Partition) -> list[Connection]:
        """Complete every fetch of a closed partition; returns connections to send on."""
        fetches = self._purgatory.find(partition)
        for fetch in fetches:
            self._complete_delayed(fetch, self._read_all(fetch.connection, fetch.request))
        return [fetch.connection for fetch in fetches]

    def _delay(
        self,
        connection: Connection,
        response: PendingResponse,
        request: FetchRequest,
        partitions: list[Partition],
    ) -> None:
        now_s = self._loop.now_s
        due_s = now_s + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        timer = self._loop.call_at(due_s, lambda: self._expire(fetch))
        fetch = DelayedFetch(
            connection, response, request, partitions, timer, now_s, self._purgatory
        )
        connection.delayed.add(fetch)
        self._purgatory.add(fetch)

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
        self._partitions_left -= len(fetch.partitions)
        result = self._read_all(fetch.connection, fetch.request)
        if self._is_complete(fetch.request, result):
            self._complete_delayed(fetch, result)
            return True
        if len(fetch.partitions) > MANY_PARTITIONS:
            fetch.next_read_s = now_s + len(fetch.partitions) * READ_PAUSE_S
        return False

    def _read_after_pause(self, fetch: DelayedFetch) -> None:
        fetch.next_read = None
        if self._complete_if_ready(fetch):
            fetch.connection.send()

    def _expire(self, fetch: DelayedFetch) -> None:
        self._complete_delayed(fetch, self._read_all(fetch.connection, fetch.request))
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
        if connection.meters is None:
            response.complete(encode_fetch_response(request, result.outcomes))
        else:
            parts, result = self._encode_metered(connection, connection.meters, request, result)
            response.complete(parts)
        for traffic, span, offset in result.reads:
            traffic.bytes_out += span.length
            traffic.messages_out += span.next_offset - offset
        if result.has_error:
            for outcome in result.outcomes:
                if outcome.error_code:
                    self._counters.count_error(FETCH_KEY, outcome.error_code)
        self._seconds.observe(time.monotonic() - began_s)

    def _encode_metered(
        self,
        connection: Connection,
        meters: ClientMeters,
        request: FetchRequest,
        result: ReadResult,
    ) -> tuple[ResponseParts, ReadResult]:
        """Encode a response of a client with quotas; above them it is empty (KIP-219)."""
        now_s = self._loop.now_s
        is_admitted, throttle_s = meters.admit_fetch(result.size, now_s)
        throttle_s = max(throttle_s, meters.request_throttle_s(now_s))
        if throttle_s > 0:
            connection.mute(throttle_s)
        if not is_admitted:
            result = ReadResult([], [], [])
        throttle_ms = milliseconds(throttle_s)
        return encode_fetch_response(request, result.outcomes, throttle_ms=throttle_ms), result

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
        pairs = zip(result.partitions, request.partitions, strict=True)
        return any(
            partition.log.is_before_last_segment(wanted.fetch_offset) for partition, wanted in pairs
        )

    def _read_all(self, connection: Connection, request: FetchRequest) -> ReadResult:
        result = ReadResult([], [], [])
        is_restricted = self._access.is_restricted
        bytes_left = min(request.max_bytes, RESPONSE_BYTES_MAX)
        for wanted in request.partitions:
            try:
                topic = self._topic_of(wanted)
                if is_restricted and topic not in connection.readable_topics:
                    self._check_readable(connection, topic)
                partition = self._partitions.get(topic, wanted.partition)
                partition.check_leader_epoch(wanted.current_leader_epoch)
                bytes_max = min(wanted.bytes_max, bytes_left)
                span = self._read(partition, wanted, bytes_max, is_first=result.size == 0)
            except RequestRefused as refusal:
                result.has_error = True
                result.outcomes.append(
                    FetchOutcome(wanted, code_of(refusal), NO_OFFSET, NO_OFFSET, None)
                )
                continue
            if span is not None:
                bytes_left = max(0, bytes_left - span.length)
                result.size += span.length
                result.reads.append((partition.traffic, span, wanted.fetch_offset))
            result.partitions.append(partition)
            log = partition.log
            result.outcomes.append(
                FetchOutcome(wanted, 0, log.high_watermark, log.log_start_offset, span)
            )
        return result

    def _topic_of(self, wanted: FetchPartition) -> str:
        if wanted.topic is not None:
            return wanted.topic
        return self._partitions.view.topic_by_id(wanted.topic_id or NO_TOPIC_ID).name

    def _check_readable(self, connection: Connection, topic: str) -> None:
        client = Client(connection.principal, connection.client_host)
        self._access.check_topic(client, AclOperation.READ, topic)
        if topic in self._partitions.view.topics:
            connection.readable_topics.add(topic)

    def _read(
        self, partition: Partition, wanted: FetchPartition, bytes_max: int, *, is_first: bool
    ) -> LogSpan | None:
        try:
            return partition.log.read(wanted.fetch_offset, bytes_max, whole_batch=is_first)
        except OSError as error:
            raise StorageFailed(f"{partition}: read failed: {error}") from error
