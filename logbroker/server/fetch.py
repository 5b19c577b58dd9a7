"""Fetch: spans of segment files up to the high watermark, at once or after a long poll."""

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from logbroker.errors import FetchSessionNotFound, RequestRefused, StorageFailed
from logbroker.server.connection import Connection
from logbroker.server.leader_epoch import check_leader_epoch
from logbroker.server.loop import SocketLoop, Timer
from logbroker.server.metrics.counters import Counters, TopicTraffic
from logbroker.server.partition import Partition, Partitions
from logbroker.storage.span import LogSpan
from logbroker.wire.answers import Slot
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import code_of
from logbroker.wire.fetch import (
    FetchOutcome,
    FetchPartition,
    FetchRequest,
    decode_fetch,
    encode_fetch_answer,
)

FETCH_KEY: Final = int(ApiKey.FETCH)

NO_SESSION: Final = 0
FULL_FETCH_EPOCHS: Final = (0, -1)
NO_OFFSET: Final = -1
NO_TOPIC_ID: Final = UUID(int=0)

WAIT_MS_MAX: Final = 5 * 60_000
"""No client may hold an answer open for longer than this, whatever it asks for."""

RESPONSE_BYTES_MAX: Final = 55 * 2**20
"""Kafka's `fetch.max.bytes` of a broker: no answer promises more than about this."""


class WaitingFetch:
    """A fetch that found less than `min_bytes`, and waits for more or for its time to be up."""

    __slots__ = ("began_s", "connection", "partitions", "request", "slot", "timer")

    def __init__(
        self,
        connection: Connection,
        slot: Slot,
        request: FetchRequest,
        partitions: list[Partition],
        timer: Timer,
        began_s: float,
    ) -> None:
        self.connection = connection
        self.slot = slot
        self.request = request
        self.partitions = partitions
        self.timer = timer
        self.began_s = began_s

    def leave(self) -> None:
        """Wait no more: it is answered, or nobody is there to be answered."""
        self.timer.cancel()
        self.connection.waiting.discard(self)
        for partition in self.partitions:
            partition.fetch_waiters.discard(self)


@dataclass(slots=True)
class Collected:
    """What a fetch finds at one moment."""

    outcomes: list[FetchOutcome]
    partitions: list[Partition]
    reads: list[tuple[TopicTraffic, LogSpan, int]]
    """Where there is something: the offset that was asked for, too."""
    size: int = 0
    has_error: bool = False


class FetchHandler:
    """Answers fetches, and wakes those that wait when a high watermark moves."""

    def __init__(self, loop: SocketLoop, partitions: Partitions, counters: Counters) -> None:
        self._loop = loop
        self._partitions = partitions
        self._counters = counters
        self._seconds = counters.request_seconds[FETCH_KEY]

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Answer the request at `view[start:end]`, or let it wait."""
        request = decode_fetch(view, start, end)
        self._counters.requests[FETCH_KEY] += 1
        slot = connection.open_slot()
        if request.session_id != NO_SESSION or request.session_epoch not in FULL_FETCH_EPOCHS:
            code = code_of(FetchSessionNotFound(f"no session {request.session_id}"))
            self._counters.count_error(FETCH_KEY, code)
            slot.fill(encode_fetch_answer(request, [], error_code=code))
            return
        collected = self._collect(request)
        if self._is_enough(request, collected):
            self._answer(slot, request, collected, self._loop.now_s)
        else:
            self._wait(connection, slot, request, collected.partitions)

    def advanced(self, partition: Partition) -> list[Connection]:
        """The high watermark moved: answer who has enough now; whose connections to send on."""
        answered = []
        for waiting in list(partition.fetch_waiters):
            collected = self._collect(waiting.request)
            if self._is_enough(waiting.request, collected):
                self._settle(waiting, collected)
                answered.append(waiting.connection)
        return answered

    def closed(self, partition: Partition) -> list[Connection]:
        """The partition is served no longer: whoever waits for it is told so."""
        waiters = list(partition.fetch_waiters)
        for waiting in waiters:
            self._settle(waiting, self._collect(waiting.request))
        return [waiting.connection for waiting in waiters]

    def _wait(
        self, connection: Connection, slot: Slot, request: FetchRequest, partitions: list[Partition]
    ) -> None:
        due_s = self._loop.now_s + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        timer = self._loop.call_at(due_s, lambda: self._time_up(waiting))
        waiting = WaitingFetch(connection, slot, request, partitions, timer, self._loop.now_s)
        connection.waiting.add(waiting)
        for partition in partitions:
            partition.fetch_waiters.add(waiting)

    def _time_up(self, waiting: WaitingFetch) -> None:
        self._settle(waiting, self._collect(waiting.request))
        waiting.connection.send()

    def _settle(self, waiting: WaitingFetch, collected: Collected) -> None:
        waiting.leave()
        self._answer(waiting.slot, waiting.request, collected, waiting.began_s)

    def _answer(
        self, slot: Slot, request: FetchRequest, collected: Collected, began_s: float
    ) -> None:
        slot.fill(encode_fetch_answer(request, collected.outcomes))
        for traffic, span, offset in collected.reads:
            traffic.bytes_out += span.length
            traffic.messages_out += span.next_offset - offset
        if collected.has_error:
            for outcome in collected.outcomes:
                if outcome.error_code:
                    self._counters.count_error(FETCH_KEY, outcome.error_code)
        self._seconds.observe(time.monotonic() - began_s)

    def _is_enough(self, request: FetchRequest, collected: Collected) -> bool:
        return (
            collected.has_error
            or collected.size >= min(request.min_bytes, request.max_bytes, RESPONSE_BYTES_MAX)
            or request.max_wait_ms <= 0
            or not collected.partitions
            or self._has_more(request, collected)
        )

    def _has_more(self, request: FetchRequest, collected: Collected) -> bool:
        """Whether a read ended with its segment and the next fetch goes on behind it."""
        pairs = zip(collected.partitions, request.partitions, strict=True)
        return any(
            partition.log.is_before_last_segment(wanted.fetch_offset) for partition, wanted in pairs
        )

    def _collect(self, request: FetchRequest) -> Collected:
        collected = Collected([], [], [])
        room = min(request.max_bytes, RESPONSE_BYTES_MAX)
        for wanted in request.partitions:
            try:
                partition = self._find(wanted)
                check_leader_epoch(partition.log, wanted.current_leader_epoch)
                bytes_max = min(wanted.bytes_max, room)
                span = self._read(partition, wanted, bytes_max, is_first=collected.size == 0)
            except RequestRefused as refusal:
                collected.has_error = True
                collected.outcomes.append(
                    FetchOutcome(wanted, code_of(refusal), NO_OFFSET, NO_OFFSET, None)
                )
                continue
            if span is not None:
                room = max(0, room - span.length)
                collected.size += span.length
                collected.reads.append((partition.traffic, span, wanted.fetch_offset))
            collected.partitions.append(partition)
            log = partition.log
            collected.outcomes.append(
                FetchOutcome(wanted, 0, log.high_watermark, log.log_start_offset, span)
            )
        return collected

    def _find(self, wanted: FetchPartition) -> Partition:
        topic = wanted.topic
        if topic is None:
            topic = self._partitions.view.topic_by_id(wanted.topic_id or NO_TOPIC_ID).name
        return self._partitions.get(topic, wanted.partition)

    def _read(
        self, partition: Partition, wanted: FetchPartition, bytes_max: int, *, is_first: bool
    ) -> LogSpan | None:
        try:
            return partition.log.read(wanted.fetch_offset, bytes_max, whole_batch=is_first)
        except OSError as error:
            raise StorageFailed(f"{partition}: read failed: {error}") from error
