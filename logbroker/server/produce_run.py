"""Runs of consecutive Produce requests with one response buffer, and their wait for flushes."""

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple, cast

from logbroker.errors import InvalidRecord, InvalidTimestamp, RequestRefused
from logbroker.server.connection import Connection
from logbroker.server.partition import Partition
from logbroker.wire.error_codes import code_of
from logbroker.wire.produce import (
    ProduceOutcome,
    ProduceRequest,
    ProduceTemplate,
    encode_produce_response,
    set_throttle_time,
)
from logbroker.wire.response_queue import PendingResponse

NO_OFFSET: Final = -1
NO_TIME: Final = -1

Appended = tuple[ProduceTemplate, int, Partition, int]
"""A batch appended through a template: template, correlation id, partition, base offset.

A plain tuple, since one is created per request and a NamedTuple takes three times as long.
"""


Validated = int | Exception | None
"""The result of validating a batch on another thread; None if it is not known."""


class HoldReason(Enum):
    """Why the next batch of a request is not appended in this turn."""

    LARGE = auto()
    """Validating it takes long."""
    MANY = auto()
    """Enough batches of the request were appended."""


class GeneralRequest(NamedTuple):
    """A request without a template, with the base offset or the error of each batch."""

    request: ProduceRequest
    results: list[tuple[Partition | None, int | RequestRefused]]


class ProduceRun:
    """Consecutive Produce requests of one connection with the same `acks`.

    An entry is a request with an appended batch, or an encoded error response. `unflushed`
    holds the partitions whose flush an `acks=all` run waits for. `failed` holds the partitions
    whose write or flush failed after the append.
    """

    __slots__ = (
        "acks",
        "began_s",
        "connection",
        "deadline_s",
        "entries",
        "failed",
        "now_ms",
        "response",
        "throttle",
        "unflushed",
    )

    def __init__(
        self,
        connection: Connection,
        response: PendingResponse | None,
        acks: int,
        began_s: float,
        deadline_s: float,
        now_ms: int,
    ) -> None:
        self.connection = connection
        self.response = response
        self.acks = acks
        self.began_s = began_s
        self.deadline_s = deadline_s
        self.now_ms = now_ms
        self.entries: list[Appended | GeneralRequest | bytes] = []
        self.unflushed: set[Partition] = set()
        self.failed: dict[Partition, RequestRefused] = {}
        self.throttle: tuple[int, int] | None = None
        """API version and throttle time in milliseconds of the last request, if it has one."""

    @property
    def is_complete(self) -> bool:
        """Whether the response is complete, or there is none."""
        return self.response is None or self.response.parts is not None

    def complete(self) -> None:
        """Complete the response; batches of partitions in `failed` get the error."""
        assert self.response is not None
        if self.failed:
            responses = [self._encode(entry) for entry in self.entries]
        else:
            responses = self._encode_appended()
        if self.throttle is not None:
            responses[-1] = set_throttle_time(responses[-1], *self.throttle)
        self.response.complete([b"".join(responses)])

    def partitions(self) -> set[Partition]:
        """Return the partitions with appended batches of the run."""
        found: set[Partition] = set()
        last = None
        for entry in self.entries:
            if entry.__class__ is tuple:
                partition = cast("Appended", entry)[2]
                if partition is not last:
                    found.add(partition)
                    last = partition
            elif isinstance(entry, GeneralRequest):
                found.update(
                    partition
                    for partition, result in entry.results
                    if partition is not None and isinstance(result, int)
                )
        return found

    def failures(self) -> Iterator[RequestRefused]:
        """Yield the error of each batch that failed after its append."""
        for entry in self.entries:
            if isinstance(entry, bytes):
                continue
            results = entry.results if isinstance(entry, GeneralRequest) else [entry[2:]]
            for partition, result in results:
                if isinstance(result, int) and partition in self.failed:
                    yield self.failed[partition]

    def has_errors(self) -> bool:
        """Return whether any batch of the run was not appended or not written."""
        return bool(self.failed) or any(
            isinstance(entry, bytes)
            or (
                isinstance(entry, GeneralRequest)
                and any(not isinstance(result, int) for _, result in entry.results)
            )
            for entry in self.entries
        )

    def _encode_appended(self) -> list[bytes]:
        """Encode the responses if all writes succeeded; neighbours usually share a partition."""
        responses: list[bytes] = []
        known, time_ms, start = None, NO_TIME, NO_OFFSET
        for entry in self.entries:
            if entry.__class__ is not tuple:
                responses.append(self._encode(entry))
                continue
            template, correlation_id, partition, base_offset = cast("Appended", entry)
            if partition is not known:
                known, (time_ms, start) = partition, self._time_and_start(partition)
            responses.append(template.encode_success(correlation_id, base_offset, time_ms, start))
        return responses

    def _encode(self, entry: Appended | GeneralRequest | bytes) -> bytes:
        if isinstance(entry, bytes):
            return entry
        if isinstance(entry, GeneralRequest):
            outcomes = [self._outcome(*result) for result in entry.results]
            return encode_produce_response(entry.request, outcomes)
        template, correlation_id, partition, base_offset = entry
        return template.encode_outcome(correlation_id, self._outcome(partition, base_offset))

    def _time_and_start(self, partition: Partition) -> tuple[int, int]:
        log = partition.log
        time_ms = self.now_ms if log.config.stamps_append_time else NO_TIME
        return time_ms, log.log_start_offset

    def _outcome(self, partition: Partition | None, result: int | RequestRefused) -> ProduceOutcome:
        if not isinstance(result, int):
            return error_outcome(result)
        assert partition is not None
        if partition in self.failed:
            return error_outcome(self.failed[partition])
        return ProduceOutcome(0, result, *self._time_and_start(partition))


class ProducePurgatory:
    """The `acks=all` runs that wait for a flush, of each partition in the order of offsets."""

    def __init__(self) -> None:
        self._runs: dict[Partition, deque[tuple[int, ProduceRun]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no run waits."""
        return not self._runs

    def add(self, partition: Partition, end_offset: int, run: ProduceRun) -> None:
        """Let `run` wait until the high watermark of `partition` reaches `end_offset`."""
        run.unflushed.add(partition)
        self._runs.setdefault(partition, deque()).append((end_offset, run))

    def pop_flushed(self, partition: Partition, high_watermark: int) -> list[ProduceRun]:
        """Remove and return the runs that wait for no later offset of `partition`."""
        waiting = self._runs.get(partition)
        flushed = []
        while waiting and waiting[0][0] <= high_watermark:
            flushed.append(waiting.popleft()[1])
        if not waiting:
            self._runs.pop(partition, None)
        return flushed

    def pop_all(self, partition: Partition) -> list[ProduceRun]:
        """Remove and return all runs that wait for `partition`."""
        return [run for _, run in self._runs.pop(partition, ())]

    def expired(self, now_s: float) -> Iterator[ProduceRun]:
        """Yield the incomplete runs whose timeout has passed."""
        for waiting in self._runs.values():
            for _, run in waiting:
                if run.deadline_s <= now_s and not run.is_complete:
                    yield run

    def remove_complete(self) -> None:
        """Remove complete and disconnected runs, whose flush may be far away."""
        for partition, waiting in list(self._runs.items()):
            kept = deque(
                (end, run) for end, run in waiting if not run.is_complete and run.connection.is_open
            )
            if kept:
                self._runs[partition] = kept
            else:
                del self._runs[partition]


def error_outcome(refusal: RequestRefused) -> ProduceOutcome:
    """Return the outcome of a batch that is not in the log."""
    record_errors = (
        refusal.record_errors if isinstance(refusal, InvalidRecord | InvalidTimestamp) else ()
    )
    return ProduceOutcome(
        code_of(refusal), NO_OFFSET, NO_TIME, NO_OFFSET, str(refusal), record_errors
    )
