"""Batches that no consumer can read, as `raw.unreadable_batches` finds them."""

from typing import NamedTuple


class SkippedBatch(NamedTuple):
    """The offsets `[start, end)` of a partition, which cannot be read, and the reason."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str

    @property
    def offsets(self) -> int:
        """The number of offsets; how many records they held is unknown."""
        return self.end - self.start


class Inspection(NamedTuple):
    """What is at an offset: batches that cannot be read, one after the other, and what follows."""

    unreadable: tuple[SkippedBatch, ...]
    has_records: bool
    """Whether a consumer can get a record after them now."""
