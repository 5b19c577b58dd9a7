"""Ranges of offsets, how they are split among tasks, and which of their offsets are lost."""

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
        """The number of offsets, an upper bound for records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """The nonempty ranges, split into one for each task, in order.

    No part has more than `max_records`. If there are fewer parts than `min_partitions`, long ones
    are split further in proportion to their size, into about that many.

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
    """The number of parts of each range.

    Ranges too short for two parts stay whole, and the others share the remaining parts.
    """
    total = sum(each.size for each in pieces)
    whole = {each for each in pieces if _parts(each.size, total, wanted) == 1}
    shared = total - sum(each.size for each in whole)
    left = max(wanted - len(whole), 1)
    return [(each, 1 if each in whole else _parts(each.size, shared, left)) for each in pieces]


def _parts(size: int, total: int, wanted: int) -> int:
    # Rounded half up as in Spark, for the same tasks as its connector.
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Parts whose sizes differ by at most one; never more parts than offsets."""
    start, pieces = whole.start, []
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            pieces.append(OffsetRange(whole.topic, whole.partition, start, end))
        start = end
    return pieces


@dataclass
class Losses:
    """Offsets that could not be read; if losses are not allowed, the first one is an error."""

    are_allowed: bool
    ranges: list[OffsetRange] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        """The number of missing offsets, an upper bound for missing records."""
        return sum(each.size for each in self.ranges)

    def add(self, lost: OffsetRange, why: str) -> None:
        """Record that these offsets cannot be read.

        Raises:
            DataLost: losses are not allowed.
        """
        if not self.are_allowed:
            raise DataLost(
                f"cannot read {lost}: {why}; failOnDataLoss=false continues with what is available"
            )
        if lost.size > 0:
            self.ranges.append(lost)
