"""How many of the available records a micro-batch takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logbroker.client.raw.parsing.metadata import TopicPartition
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import BoundsByPartition, Offsets, clip_range

PARTITION_GONE: Final = "the partition no longer exists"


def truncated_at(end: int) -> str:
    """The reason of a loss in a partition that now ends before what was read of it."""
    return f"the log now ends at {end}: the topic was recreated or truncated"


def limit_ends(most: int, starts: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
    """Ends at most `most` offsets after all starts together, in proportion to partition sizes.

    Each nonempty partition gets at least one offset, so the total may slightly exceed `most`.
    Source: Structured Streaming + Kafka Integration Guide, `maxOffsetsPerTrigger`.
    """
    sizes = {tp: max(end - starts[tp], 0) for tp, end in ends.items()}
    total = sum(sizes.values())
    return {
        tp: starts[tp] + min(_share(most, size, total), size) if size else ends[tp]
        for tp, size in sizes.items()
    }


def _share(most: int, size: int, total: int) -> int:
    share = most * (size / total)
    return math.ceil(share) if share < 1 else math.floor(share)


@dataclass
class TriggerDelay:
    """Delays a micro-batch until it has `least` offsets or has waited `delay_s`.

    The first micro-batch is not delayed.
    """

    least: int
    delay_s: float
    last_s: float | None = None
    """When the last micro-batch was admitted."""

    def admits(self, waiting: int, now_s: float) -> bool:
        """Whether to start a micro-batch of `waiting` offsets; `now_s` is of a monotonic clock."""
        is_late = self.last_s is None or now_s - self.last_s >= self.delay_s
        if is_late or waiting >= self.least:
            self.last_s = now_s
            return True
        return False


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Offsets, bounds: BoundsByPartition, losses: Losses
) -> list[OffsetRange]:
    """The ranges of a micro-batch from `starts` to `ends`, in a log with these bounds.

    New partitions are read from their first offset. A partition without an end is left to the next
    micro-batch, for which it is new: before its first commit, a restarted stream gets new starts
    for old ends. Losses are: a partition that no longer exists, one that ends before its start, and
    deleted first records of a new one.

    Raises:
        DataLost: a part is missing, and `losses` allows none.
    """
    ranges = []
    for tp in sorted(starts.keys() | ends.keys()):
        start = starts.get(tp, 0)
        asked = OffsetRange(*tp, start, ends.get(tp, start))
        if tp not in bounds:
            losses.add(asked, PARTITION_GONE)
        elif tp not in ends:
            continue
        elif asked.size < 0:
            losses.add(asked, truncated_at(asked.end))
        else:
            ranges.append(clip_range(asked, bounds[tp], losses))
    return ranges
