"""Which records of `delivery_log` the live path has not settled, by its committed position."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from app.config import Settings
from app.domain.partition_progress import InvalidCommitMetadata, PartitionCommit, unsettled_offsets
from app.log.group_position import GroupPositionReader
from app.log.topics import DELIVERERS, DELIVERY_LOG

_GAP_MAX: Final = 64
"""Unsettled offsets with fewer settled ones between them are read together."""


class UnsettledRecords(NamedTuple):
    """The unsettled records of a partition: some below `position`, and all from there to `end`."""

    partition: int
    low: int
    position: int
    end: int
    below: tuple[int, ...]
    """In rising order."""

    def with_further(self, offsets: Iterable[int]) -> "UnsettledRecords":
        """With some records below `position` that are settled, and pending all the same."""
        further = {each for each in offsets if each < self.position}
        return self._replace(below=tuple(sorted(further.union(self.below)))) if further else self

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and (offset >= self.position or offset in self.below)

    def ranges_below(self, end: int) -> list[tuple[int, int]]:
        """The ranges `[start, end)` that have all unsettled offsets below `end`, latest first.

        Some of the settled offsets between them are in these ranges, too.
        """
        ranges: list[tuple[int, int]] = []
        for offset in self.below:
            if ranges and offset - ranges[-1][1] <= _GAP_MAX:
                ranges[-1] = (ranges[-1][0], offset + 1)
            else:
                ranges.append((offset, offset + 1))
        if self.position < self.end:
            ranges.append((self.position, self.end))
        found = [(max(self.low, start), min(stop, end)) for start, stop in reversed(ranges)]
        return [(start, stop) for start, stop in found if start < stop]


class UnsettledReader:
    """Reads the committed positions of the live path's deliverers. Thread-safe; blocks."""

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self._reader = GroupPositionReader(settings, DELIVERERS, timeout_s)

    def close(self) -> None:
        """Close the client."""
        self._reader.close()

    def unsettled(self, partition: int) -> UnsettledRecords:
        """Return the unsettled records of a partition. Without a committed position, all are.

        Raises:
            LogUnavailable: the log does not answer, or refuses the request.
        """
        committed, (low, high) = self._reader.positions(DELIVERY_LOG, [partition])[partition]
        if committed is None:
            return UnsettledRecords(partition, low, low, high, ())
        commit = PartitionCommit(committed.position, committed.note)
        try:
            below = unsettled_offsets(commit)
        except InvalidCommitMetadata:
            # The position was committed by another program.
            below = ()
        return UnsettledRecords(partition, low, commit.position, high, below)
