"""The state of partitions while they are copied: positions, pauses, age of uncopied records."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 30.0

AGE_EXACTNESS: Final = 32
"""A record's age is exact to this part of the oldest one's age, or to the interval of updates."""

TopicAndPartition = tuple[str, int]
"""A topic and the number of one of its partitions."""


class AcknowledgedRecords(NamedTuple):
    """Times in ms since 1970, bytes of key and value, and audit marks of records, in order."""

    times_ms: list[int]
    sizes: list[int]
    marks: list[bytes | None]


class PartitionProgress:
    """Follows the records of a source partition until the destination acknowledges them.

    `position` may be committed: everything below it is at the destination, was skipped, or is not
    a record. It is None until the first offset is known.
    """

    __slots__ = ("_marks", "_offsets", "_sizes", "_times_ms", "committed", "next_offset")

    def __init__(self, start: int | None) -> None:
        """`start` is the first offset to read; None for the earliest."""
        self.next_offset = start
        """The offset after the last record that was sent or skipped."""
        self.committed = start
        """The last stored position."""
        # Of the records in flight. An object for each would take twice as long.
        self._offsets: list[int] = []
        self._times_ms: list[int] = []
        self._sizes: list[int] = []
        self._marks: list[bytes | None] = []

    def record_sent(self, offset: int, time_ms: int, size: int, mark: bytes | None) -> None:
        """Record that a record is in flight: its time, bytes of key and value, and audit mark."""
        self._offsets.append(offset)
        self._times_ms.append(time_ms)
        self._sizes.append(size)
        self._marks.append(mark)
        self.next_offset = offset + 1

    def skip_to(self, offset: int) -> None:
        """Record that nothing below `offset` remains to be sent."""
        self.next_offset = offset

    def take_acknowledged(self, count: int) -> AcknowledgedRecords:
        """Return the first `count` records in flight, which the destination has."""
        taken = AcknowledgedRecords(
            self._times_ms[:count], self._sizes[:count], self._marks[:count]
        )
        del self._offsets[:count], self._times_ms[:count], self._sizes[:count], self._marks[:count]
        return taken

    def offset_in_flight(self, index: int) -> int:
        """Return the offset of a record in flight; the first one has the index 0."""
        return self._offsets[index]

    @property
    def is_idle(self) -> bool:
        """Whether no record is in flight."""
        return not self._offsets

    @property
    def position(self) -> int | None:
        """The first offset that the destination may not have."""
        return self._offsets[0] if self._offsets else self.next_offset


class PartitionBackoff:
    """Pauses partitions whose record was rejected or cannot be read, while the others continue."""

    def __init__(self) -> None:
        self._until: dict[TopicAndPartition, tuple[float, float]] = {}

    def pause(self, tp: TopicAndPartition, now_s: float, *, has_moved: bool) -> float:
        """Pause a partition; return for how long.

        The time doubles with each failure, unless the partition has moved since the previous one.
        """
        _, last_s = self._until.get(tp, (0.0, 0.0))
        pause_s = RETRY_S if has_moved or not last_s else min(2 * last_s, RETRY_MAX_S)
        self._until[tp] = now_s + pause_s, pause_s
        return pause_s

    def is_paused(self, tp: TopicAndPartition, now_s: float) -> bool:
        """Whether a partition is not to be read yet."""
        until_s, _ = self._until.get(tp, (0.0, 0.0))
        return now_s < until_s


class UncopiedSince:
    """How long the oldest uncopied record of a partition has been at the source.

    A record is as old as the first update with a log end above it, whatever its own time. Updates
    that are close together are merged, so their number grows with the logarithm of the time: some
    hundreds in a month. No age is ever too low.
    """

    __slots__ = ("_ends", "since_s")

    def __init__(self) -> None:
        self.since_s: float | None = None
        """When the oldest uncopied record was first seen; None without one."""
        self._ends: list[tuple[float, int]] = []
        """Times, and the log ends seen then or soon after; both grow."""

    def update(self, now_s: float, position: int, end: int) -> None:
        """Record that everything below `position` is copied, and that the source ends at `end`."""
        ends = self._ends
        if ends and end < ends[-1][1]:
            # The topic was recreated, or lost records.
            ends.clear()
        while ends and ends[0][1] <= position:
            del ends[0]
        if end > position:
            self._add_end(now_s, end)
        self.since_s = ends[0][0] if ends else None

    def _add_end(self, now_s: float, end: int) -> None:
        ends = self._ends
        if ends and now_s - ends[-1][0] < (now_s - ends[0][0]) / AGE_EXACTNESS:
            ends[-1] = ends[-1][0], end
        elif not ends or end > ends[-1][1]:
            ends.append((now_s, end))


def format_partitions(topic_partitions: Iterable[TopicAndPartition]) -> str:
    """Return partitions as short text, consecutive ones as ranges: `clicks-0..15,logs-0`."""
    runs = groupby(
        enumerate(sorted(topic_partitions)), key=lambda each: (each[1][0], each[1][1] - each[0])
    )
    return ",".join(_format_run([tp for _, tp in run]) for _, run in runs)


def _format_run(topic_partitions: list[TopicAndPartition]) -> str:
    topic, first = topic_partitions[0]
    last = topic_partitions[-1][1]
    return f"{topic}-{first}" if first == last else f"{topic}-{first}..{last}"
