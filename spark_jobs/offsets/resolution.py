"""What the brokers tell of a log, against what was asked for: decided without asking anybody."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from logbroker.client.raw import EARLIEST, LATEST, TopicDescription, TopicPartition
from spark_jobs.errors import InvalidOption
from spark_jobs.offsets.limits import (
    Assigned,
    AtOffsets,
    AtTimes,
    Choice,
    Limit,
    Matching,
    of_each,
)
from spark_jobs.offsets.ranges import Losses, OffsetRange

Offsets = dict[TopicPartition, int]
Bounds = Mapping[TopicPartition, "Bound"]


class Bound(NamedTuple):
    """The offsets [first, end) that a partition has."""

    first: int
    end: int


def chosen(choice: Choice, topics: Mapping[str, TopicDescription]) -> set[TopicPartition]:
    """The partitions of `topics` that a choice means."""
    every = {
        TopicPartition(topic, partition)
        for topic, plan in topics.items()
        for partition in plan.partitions
        if not (isinstance(choice, Matching) and plan.is_internal)
    }
    match choice:
        case Matching(pattern):
            return {each for each in every if pattern.search(each.topic)}
        case Assigned(partitions):
            return every & partitions
    return {each for each in every if each.topic in choice.topics}


def times(limit: Limit, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The times to look up for a limit, in ms since 1970; none where it names offsets.

    Raises:
        InvalidOption: the limit is one for other partitions than these.
    """
    asked = limit.times_ms if isinstance(limit, AtTimes) else limit.offsets
    if not isinstance(asked, int) and set(asked) != set(partitions):
        raise InvalidOption(
            "offsets or times have to be given for all partitions that are read, and for no other; "
            f"missing: {_names(set(partitions) - set(asked))}; "
            f"not read: {_names(set(asked) - set(partitions))}"
        )
    if isinstance(limit, AtOffsets):
        return {}
    return {each: of_each(asked, each) for each in partitions}


def resolve(limit: Limit, bounds: Bounds, found: Mapping[TopicPartition, int | None]) -> Offsets:
    """The offset of a limit in each partition of `bounds`; `found` is by the look-ups of `times`.

    Raises:
        InvalidOption: a partition has no record that late, and the limit allows no other place.
    """
    return {place: _resolve(limit, place, bounds[place], found.get(place)) for place in bounds}


def _resolve(limit: Limit, place: TopicPartition, bounds: Bound, found: int | None) -> int:
    if isinstance(limit, AtOffsets):
        named = of_each(limit.offsets, place)
        return {EARLIEST: bounds.first, LATEST: bounds.end}.get(named, named)
    if found is None and not limit.or_latest:
        raise InvalidOption(
            f"{place} has no record of the time {of_each(limit.times_ms, place)} ms "
            "or later to start at; startingOffsetsByTimestampStrategy=latest starts at its end"
        )
    return bounds.end if found is None else found


def within(asked: OffsetRange, bounds: Bound, losses: Losses) -> OffsetRange:
    """What there is of a range.

    Raises:
        DataLost: something is missing, and `losses` allows none.
    """
    first, end = bounds
    has = f"the log has offsets [{first}, {end})"
    start = asked.start
    if start > end:
        losses.add(asked, has)
        return OffsetRange(asked.topic, asked.partition, start, start)
    if start < first and asked.size > 0:
        start = min(first, asked.end)
        losses.add(OffsetRange(asked.topic, asked.partition, asked.start, start), has)
    if asked.end > end:
        losses.add(OffsetRange(asked.topic, asked.partition, end, asked.end), has)
    return OffsetRange(asked.topic, asked.partition, start, max(start, min(asked.end, end)))


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
