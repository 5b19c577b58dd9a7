"""Scans of one partition, forward or backward, by reads that all go forward.

A log is read from an offset on, and only forward. Offsets may be missing, because of compaction or
transaction markers. So a backward scan reads a short range that ends where the previous one began,
and widens it while it finds nothing.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

RANGE_RECORDS_MAX: Final = 200
"""A range with more records is read again, shorter, because only its last records are wanted."""


class RawRecord(NamedTuple):
    """A record as it was read; its time is None if it has none."""

    partition: int
    offset: int
    timestamp_ms: int | None
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None


class RangeRequest(NamedTuple):
    """A read of at most `records_max` records in `[start, end)`."""

    start: int
    end: int
    records_max: int


class RangeResult(NamedTuple):
    """The records in `[start, position)`; `position` is the end of the range if it is complete."""

    records: Sequence[RawRecord]
    position: int


class PartitionScan(Protocol):
    """A scan of one partition."""

    @property
    def needs_read(self) -> bool:
        """Whether the next record is unknown until a read."""

    @property
    def head(self) -> RawRecord | None:
        """The next record; None if there is none, or it is unknown."""

    @property
    def position(self) -> int:
        """Where to continue later: the popped records lie on the other side."""

    @property
    def is_done(self) -> bool:
        """Whether nothing lies beyond `position`."""

    def pop(self) -> RawRecord:
        """Remove and return the head."""

    def next_request(self) -> RangeRequest:
        """Return the next read, if one is needed."""

    def add_result(self, request: RangeRequest, result: RangeResult) -> None:
        """Add the result of a read."""

    def limit_to_one(self) -> None:
        """Request one record in the next read: there is no room for more."""


class ForwardScan:
    """Scans the offsets `[start, end)` forward."""

    def __init__(self, start: int, end: int, at_once: int) -> None:
        self._read_to = start
        self._end = end
        self._at_once = at_once
        self._records: deque[RawRecord] = deque()

    @property
    def needs_read(self) -> bool:
        """See `PartitionScan`."""
        return not self._records and self._read_to < self._end

    @property
    def head(self) -> RawRecord | None:
        """See `PartitionScan`."""
        return self._records[0] if self._records else None

    @property
    def position(self) -> int:
        """The offset to continue at."""
        return self._records[0].offset if self._records else self._read_to

    @property
    def is_done(self) -> bool:
        """See `PartitionScan`."""
        return self.position >= self._end

    def pop(self) -> RawRecord:
        """See `PartitionScan`."""
        return self._records.popleft()

    def next_request(self) -> RangeRequest:
        """See `PartitionScan`."""
        return RangeRequest(self._read_to, self._end, self._at_once)

    def add_result(self, request: RangeRequest, result: RangeResult) -> None:
        """See `PartitionScan`."""
        self._records.extend(result.records)
        self._read_to = max(request.start, result.position)
        # A partition that is read again has more of the wanted records than others.
        self._at_once *= 2

    def limit_to_one(self) -> None:
        """See `PartitionScan`."""
        self._at_once = 1


class BackwardScan:
    """Scans the offsets `[start, end)` backward."""

    def __init__(self, start: int, end: int, at_once: int) -> None:
        self._start = start
        self._read_from = end
        self._width = at_once
        self._records: list[RawRecord] = []

    @property
    def needs_read(self) -> bool:
        """See `PartitionScan`."""
        return not self._records and self._read_from > self._start

    @property
    def head(self) -> RawRecord | None:
        """See `PartitionScan`."""
        return self._records[-1] if self._records else None

    @property
    def position(self) -> int:
        """The offset to continue below."""
        return self._records[-1].offset + 1 if self._records else self._read_from

    @property
    def is_done(self) -> bool:
        """See `PartitionScan`."""
        return self.position <= self._start

    def pop(self) -> RawRecord:
        """See `PartitionScan`."""
        return self._records.pop()

    def next_request(self) -> RangeRequest:
        """See `PartitionScan`."""
        start = max(self._start, self._read_from - self._width)
        return RangeRequest(start, self._read_from, RANGE_RECORDS_MAX)

    def add_result(self, request: RangeRequest, result: RangeResult) -> None:
        """See `PartitionScan`."""
        if result.position < request.end:
            # The last records are missing, and they come first: read half of the missing range.
            self._width = max(1, (request.end - result.position) // 2)
            return
        self._records.extend(result.records)
        self._read_from = request.start
        self._width *= 2 if result.records else 4

    def limit_to_one(self) -> None:
        """See `PartitionScan`."""
        self._width = 1
