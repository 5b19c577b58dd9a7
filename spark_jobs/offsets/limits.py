"""Which partitions are read, from where and up to where, as the user says it.

Source: Structured Streaming + Kafka Integration Guide, `subscribe`, `startingOffsets` and the
options beside them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from logbroker.client.raw import TopicPartition


@dataclass(frozen=True)
class Subscribed:
    """All partitions of the topics of these names."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Matching:
    """All partitions of the topics in whose name it is found; Kafka's own topics are left out."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assigned:
    """These partitions alone."""

    partitions: frozenset[TopicPartition]


Choice = Subscribed | Matching | Assigned


@dataclass(frozen=True)
class AtOffsets:
    """Everywhere the same (`EARLIEST`, `LATEST`), or an offset for each partition.

    Each may be `EARLIEST` or `LATEST`, too.
    """

    offsets: int | Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimes:
    """The first record of that time or later: ms since 1970, everywhere, or for each partition.

    Where a partition has no such record it is its end; for a start only if `or_latest`.
    """

    times_ms: int | Mapping[TopicPartition, int]
    or_latest: bool = True


Limit = AtOffsets | AtTimes


def of_each(values: int | Mapping[TopicPartition, int], place: TopicPartition) -> int:
    """The value for a partition, of one for all or of one for each."""
    return values if isinstance(values, int) else values[place]
