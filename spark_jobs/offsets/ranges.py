"""Ranges of offsets, and how they are shared out among tasks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_jobs.errors import DataLost


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it has: no fewer than records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Ranges for a task each, in order; empty ones are left out.

    None is longer than `max_records`. Then, if there are fewer than `min_partitions`, the long ones
    are cut further, in proportion to their size, so that there are about that many.

    Source: Structured Streaming + Kafka Integration Guide, `minPartitions` and
    `maxRecordsPerPartition`.
    """
    pieces = [each for each in sorted(ranges) if each.size > 0]
    if max_records is not None:
        pieces = [
            part for each in pieces for part in _cut(each, math.ceil(each.size / max_records))
        ]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    return [part for each, parts in _shares(pieces, min_partitions) for part in _cut(each, parts)]


def _shares(pieces: list[OffsetRange], wanted: int) -> list[tuple[OffsetRange, int]]:
    """Into how many parts each is cut.

    Those too short for a cut stay as they are, and the others share what is left of the parts.
    """
    total = sum(each.size for each in pieces)
    whole = {each for each in pieces if _parts(each.size, total, wanted) == 1}
    shared = total - sum(each.size for each in whole)
    left = max(wanted - len(whole), 1)
    return [(each, 1 if each in whole else _parts(each.size, shared, left)) for each in pieces]


def _parts(size: int, total: int, wanted: int) -> int:
    # Half is rounded up, as Spark does it: the tasks of both are the same.
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Parts whose sizes differ by one at most; never more than there are offsets."""
    start, pieces = whole.start, []
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            pieces.append(OffsetRange(whole.topic, whole.partition, start, end))
        start = end
    return pieces


@dataclass
class Losses:
    """What was passed over; where nothing may be, the first loss ends the reading."""

    are_allowed: bool
    ranges: list[OffsetRange] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        """How many offsets are missing: no fewer than records are."""
        return sum(each.size for each in self.ranges)

    def add(self, lost: OffsetRange, why: str) -> None:
        """Note that these offsets cannot be read.

        Raises:
            DataLost: nothing may be lost.
        """
        if not self.are_allowed:
            raise DataLost(
                f"{lost} cannot be read: {why}; failOnDataLoss=false goes on with what there is"
            )
        if lost.size > 0:
            self.ranges.append(lost)
