"""How the records of one partition are gone through, up or down, by reads that all go up.

A log is read from an offset on, and only upwards; offsets may be missing, where the log was
compacted or holds markers of transactions. So going down means to read a short span that ends where
the last one began, and to widen it while nothing is found in it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

SPAN_RECORDS_MAX: Final = 200
"""A span with more records is read anew, shorter, for those at its end alone are wanted."""


class RawRecord(NamedTuple):
    """A record as it was read; its time is None where it has none."""

    partition: int
    offset: int
    timestamp_ms: int | None
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None


class Probe(NamedTuple):
    """A read of the records in `[start, end)`, of so many at most."""

    start: int
    end: int
    records_max: int


class Stretch(NamedTuple):
    """What a read brought: all records in `[start, position)`, and that is `end` if all came."""

    records: Sequence[RawRecord]
    position: int


class Walk(Protocol):
    """One partition, gone through from where it is entered."""

    @property
    def is_lacking(self) -> bool:
        """Whether a read is needed to tell what comes next."""

    @property
    def head(self) -> RawRecord | None:
        """What comes next; None when nothing does, or it is not known yet."""

    @property
    def position(self) -> int:
        """Where to go on later: what was taken lies on the other side."""

    @property
    def is_over(self) -> bool:
        """Whether nothing lies beyond `position`."""

    def take(self) -> RawRecord:
        """Take the head."""

    def probe(self) -> Probe:
        """The next read, for a walk that is lacking."""

    def learn(self, probe: Probe, stretch: Stretch) -> None:
        """Take in what a read brought."""

    def humble(self) -> None:
        """Ask for one record alone the next time: there is no room for more."""


class Ascent:
    """Goes up from `start`; nothing is wanted from `end` on."""

    def __init__(self, start: int, end: int, at_once: int) -> None:
        self._read_to = start
        self._end = end
        self._at_once = at_once
        self._records: deque[RawRecord] = deque()

    @property
    def is_lacking(self) -> bool:
        """See `Walk`."""
        return not self._records and self._read_to < self._end

    @property
    def head(self) -> RawRecord | None:
        """See `Walk`."""
        return self._records[0] if self._records else None

    @property
    def position(self) -> int:
        """The offset to go on with."""
        return self._records[0].offset if self._records else self._read_to

    @property
    def is_over(self) -> bool:
        """See `Walk`."""
        return self.position >= self._end

    def take(self) -> RawRecord:
        """See `Walk`."""
        return self._records.popleft()

    def probe(self) -> Probe:
        """See `Walk`."""
        return Probe(self._read_to, self._end, self._at_once)

    def learn(self, probe: Probe, stretch: Stretch) -> None:
        """See `Walk`."""
        self._records.extend(stretch.records)
        self._read_to = max(probe.start, stretch.position)
        # A partition that has to be asked again has more of what is wanted than others.
        self._at_once *= 2

    def humble(self) -> None:
        """See `Walk`."""
        self._at_once = 1


class Descent:
    """Goes down from below `end`; nothing is wanted below `start`."""

    def __init__(self, start: int, end: int, at_once: int) -> None:
        self._start = start
        self._read_from = end
        self._width = at_once
        self._records: list[RawRecord] = []

    @property
    def is_lacking(self) -> bool:
        """See `Walk`."""
        return not self._records and self._read_from > self._start

    @property
    def head(self) -> RawRecord | None:
        """See `Walk`."""
        return self._records[-1] if self._records else None

    @property
    def position(self) -> int:
        """The offset to go on below."""
        return self._records[-1].offset + 1 if self._records else self._read_from

    @property
    def is_over(self) -> bool:
        """See `Walk`."""
        return self.position <= self._start

    def take(self) -> RawRecord:
        """See `Walk`."""
        return self._records.pop()

    def probe(self) -> Probe:
        """See `Walk`."""
        start = max(self._start, self._read_from - self._width)
        return Probe(start, self._read_from, SPAN_RECORDS_MAX)

    def learn(self, probe: Probe, stretch: Stretch) -> None:
        """See `Walk`."""
        if stretch.position < probe.end:
            # Those at the end are missing, and they come first: half of what was not reached.
            self._width = max(1, (probe.end - stretch.position) // 2)
            return
        self._records.extend(stretch.records)
        self._read_from = probe.start
        self._width *= 2 if stretch.records else 4

    def humble(self) -> None:
        """See `Walk`."""
        self._width = 1
