"""Consecutive produce requests that are answered in one piece, and what became of each batch."""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from logbroker.errors import RequestRefused
from logbroker.server.connection import Connection
from logbroker.server.partition import Partition
from logbroker.wire.answers import Slot
from logbroker.wire.error_codes import code_of
from logbroker.wire.produce import (
    ProduceOutcome,
    ProduceRequest,
    ProduceTemplate,
    encode_produce_answer,
)

NO_OFFSET: Final = -1
NO_TIME: Final = -1

Appended = tuple[ProduceTemplate, int, Partition, int]
"""One batch that went the templates' way: template, correlation id, partition, base offset.

A plain tuple, since one is made for each request: a named one takes thrice as long to make.
"""


class Mixed(NamedTuple):
    """A whole request that went the general way; an error stands where a batch was refused."""

    request: ProduceRequest
    results: list[tuple[Partition | None, int | RequestRefused]]


class ProduceRun:
    """Consecutive produce requests of one connection with one `acks`, answered in one piece.

    An entry is a request whose batch is appended, or the answer where it is known already.
    `waiting` holds the partitions whose flush an `acks=all` run still waits for, `failed` those
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
        "slot",
        "waiting",
    )

    def __init__(
        self,
        connection: Connection,
        slot: Slot | None,
        acks: int,
        began_s: float,
        deadline_s: float,
        now_ms: int,
    ) -> None:
        self.connection = connection
        self.slot = slot
        self.acks = acks
        self.began_s = began_s
        self.deadline_s = deadline_s
        self.now_ms = now_ms
        self.entries: list[Appended | Mixed | bytes] = []
        self.waiting: set[Partition] = set()
        self.failed: dict[Partition, RequestRefused] = {}

    @property
    def is_answered(self) -> bool:
        """Whether nobody waits for this run any more."""
        return self.slot is None or self.slot.parts is not None

    def answer(self) -> None:
        """Fill the slot; batches of a partition in `failed` get its error."""
        assert self.slot is not None
        answers = self._encode_all() if self.failed else self._encode_appended()
        self.slot.fill([b"".join(answers)])

    def partitions(self) -> set[Partition]:
        """Where the run has appended something."""
        found: set[Partition] = set()
        last = None
        for entry in self.entries:
            if entry.__class__ is tuple:
                partition = cast("Appended", entry)[2]
                if partition is not last:
                    found.add(partition)
                    last = partition
            elif isinstance(entry, Mixed):
                found.update(
                    partition
                    for partition, result in entry.results
                    if partition is not None and isinstance(result, int)
                )
        return found

    def failures(self) -> Iterator[RequestRefused]:
        """Why each batch that was appended, and failed after that, did."""
        for entry in self.entries:
            if isinstance(entry, bytes):
                continue
            results = entry.results if isinstance(entry, Mixed) else [entry[2:]]
            for partition, result in results:
                if isinstance(result, int) and partition in self.failed:
                    yield self.failed[partition]

    def has_refusals(self) -> bool:
        """Whether any batch of the run was not appended, or not written."""
        return bool(self.failed) or any(
            isinstance(entry, bytes)
            or (isinstance(entry, Mixed) and any(not isinstance(r, int) for _, r in entry.results))
            for entry in self.entries
        )

    def _encode_appended(self) -> list[bytes]:
        """The answers where every write went well; neighbours mostly share their partition."""
        answers: list[bytes] = []
        known, time_ms, start = None, NO_TIME, NO_OFFSET
        for entry in self.entries:
            if entry.__class__ is not tuple:
                answers.append(self._encode(entry))
                continue
            template, correlation_id, partition, base_offset = cast("Appended", entry)
            if partition is not known:
                known, (time_ms, start) = partition, self._time_and_start(partition)
            answers.append(template.encode_success(correlation_id, base_offset, time_ms, start))
        return answers

    def _encode_all(self) -> list[bytes]:
        return [self._encode(entry) for entry in self.entries]

    def _encode(self, entry: "Appended | Mixed | bytes") -> bytes:
        if isinstance(entry, bytes):
            return entry
        if isinstance(entry, Mixed):
            outcomes = [self._outcome(*result) for result in entry.results]
            return encode_produce_answer(entry.request, outcomes)
        template, correlation_id, partition, base_offset = entry
        return template.encode_outcome(correlation_id, self._outcome(partition, base_offset))

    def _time_and_start(self, partition: Partition) -> tuple[int, int]:
        log = partition.log
        time_ms = self.now_ms if log.config.stamps_append_time else NO_TIME
        return time_ms, log.log_start_offset

    def _outcome(self, partition: Partition | None, result: int | RequestRefused) -> ProduceOutcome:
        if not isinstance(result, int):
            return refused(result)
        assert partition is not None
        if partition in self.failed:
            return refused(self.failed[partition])
        return ProduceOutcome(0, result, *self._time_and_start(partition))


def refused(refusal: RequestRefused) -> ProduceOutcome:
    """The outcome of a batch that is not in the log."""
    return ProduceOutcome(code_of(refusal), NO_OFFSET, NO_TIME, NO_OFFSET, str(refusal))
