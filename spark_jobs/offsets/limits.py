"""Which partitions to read, and from which offsets or times to which.

Source: Structured Streaming + Kafka Integration Guide, `subscribe`, `startingOffsets` and related
options.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from logbroker.client.raw.parsing.metadata import TopicPartition


@dataclass(frozen=True)
class Subscribed:
    """All partitions of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Matching:
    """All partitions of topics whose name contains a match, except Kafka's internal topics."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assigned:
    """Exactly these partitions."""

    partitions: frozenset[TopicPartition]


Choice = Subscribed | Matching | Assigned


@dataclass(frozen=True)
class AtOffsets:
    """One offset for all partitions, or one for each.

    An offset may be `EARLIEST` or `LATEST`.
    """

    offsets: int | Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimes:
    """The first record of a time or later, in ms since 1970; one time for all partitions, or each.

    A partition without such a record means its end, for a start only with `or_latest`.
    """

    times_ms: int | Mapping[TopicPartition, int]
    or_latest: bool = True


Limit = AtOffsets | AtTimes


def value_for(values: int | Mapping[TopicPartition, int], tp: TopicPartition) -> int:
    """The value for a partition, of one for all or one for each."""
    return values if isinstance(values, int) else values[tp]
