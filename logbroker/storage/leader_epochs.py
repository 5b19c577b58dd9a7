"""Which leader epoch wrote from which offset on."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from logbroker.records.batch import BatchHeader

NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 0


class LeaderEpochs:
    """Leader epochs with the offsets they began at, both rising; there is at least one.

    Source: KIP-101; Kafka, `LeaderEpochFileCache.java`.
    """

    __slots__ = ("starts",)

    def __init__(self, starts: Iterable[tuple[int, int]]) -> None:
        self.starts = sorted(starts)

    @property
    def latest(self) -> int:
        """The epoch that batches are appended under."""
        return self.starts[-1][0] if self.starts else FIRST_EPOCH

    def note(self, header: BatchHeader) -> None:
        """Take in a batch of the log, in the log's order."""
        if not self.starts or header.leader_epoch > self.latest:
            self.starts.append((header.leader_epoch, header.base_offset))

    def cut(self, start: int, end: int) -> None:
        """Forget the epochs that began at `end` or behind it; one is left, if only at `start`."""
        below = [(epoch, begun) for epoch, begun in self.starts if begun < end]
        self.starts = below or self.starts[:1] or [(FIRST_EPOCH, start)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The last epoch up to this one, and the offset it ended at; (-1, -1) if none."""
        if not 0 <= epoch <= self.latest:
            return NO_EPOCH, NO_EPOCH
        later = bisect_right(self.starts, epoch, key=lambda entry: entry[0])
        end = self.starts[later][1] if later < len(self.starts) else log_end_offset
        return self.starts[later - 1][0] if later else epoch, end
