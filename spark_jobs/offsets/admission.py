"""How much of what there is a micro-batch takes: decided without a clock and without a log."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logbroker.client.raw import TopicPartition
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import Bounds, Offsets, within

GONE: Final = "the partition is not there any more"


def cut_to(end: int) -> str:
    """What is said of a partition that was read further than it reaches now."""
    return f"the log ends at {end} now: the topic was made anew, or cut"


def limited(most: int, starts: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
    """Ends no further than `most` offsets behind all starts together, in proportion to their sizes.

    A partition that has any takes one at least, so a batch may be somewhat larger.
    Source: Structured Streaming + Kafka Integration Guide, `maxOffsetsPerTrigger`.
    """
    sizes = {place: max(end - starts[place], 0) for place, end in ends.items()}
    total = sum(sizes.values())
    return {
        place: starts[place] + min(_share(most, size, total), size) if size else ends[place]
        for place, size in sizes.items()
    }


def _share(most: int, size: int, total: int) -> int:
    share = most * (size / total)
    return math.ceil(share) if share < 1 else math.floor(share)


@dataclass
class Pace:
    """Holds a micro-batch back until there is enough for one, or it has waited long enough.

    The first one is not held back.
    """

    least: int
    delay_s: float
    last_s: float | None = None
    """When a batch was let through last."""

    def lets_through(self, waiting: int, now_s: float) -> bool:
        """Whether to take what there is: `waiting` offsets, at `now_s` of any steady clock."""
        is_late = self.last_s is None or now_s - self.last_s >= self.delay_s
        if is_late or waiting >= self.least:
            self.last_s = now_s
            return True
        return False


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Offsets, bounds: Bounds, losses: Losses
) -> list[OffsetRange]:
    """What a micro-batch from `starts` to `ends` reads of a log that is now as `bounds` say.

    New partitions are read from their first record on. One that came up after the ends were noted
    is left to the next micro-batch, for which it is new: before its first commit, a stream that is
    started again gets new starts for old ends. What lies in the way of reading everything is a
    loss: a partition that is gone, one that ends before it was read up to, a new one that lacks its
    first records.

    Raises:
        DataLost: something is missing, and `losses` allows none.
    """
    ranges = []
    for place in sorted(starts.keys() | ends.keys()):
        start = starts.get(place, 0)
        asked = OffsetRange(*place, start, ends.get(place, start))
        if place not in bounds:
            losses.add(asked, GONE)
        elif place not in ends:
            continue
        elif asked.size < 0:
            losses.add(asked, cut_to(asked.end))
        else:
            ranges.append(within(asked, bounds[place], losses))
    return ranges
