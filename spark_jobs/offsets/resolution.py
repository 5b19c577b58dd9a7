"""Resolves choices and limits to partitions and offsets, from what the brokers returned."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from logbroker.client.raw.parsing.metadata import EARLIEST, LATEST, TopicDescription, TopicPartition
from spark_jobs.errors import InvalidOption
from spark_jobs.offsets.limits import (
    Assigned,
    AtOffsets,
    AtTimes,
    Choice,
    Limit,
    Matching,
    value_for,
)
from spark_jobs.offsets.ranges import Losses, OffsetRange

Offsets = dict[TopicPartition, int]
BoundsByPartition = Mapping[TopicPartition, "OffsetBounds"]


class OffsetBounds(NamedTuple):
    """The offsets [first, end) of a partition."""

    first: int
    end: int


def chosen_partitions(
    choice: Choice, topics: Mapping[str, TopicDescription]
) -> set[TopicPartition]:
    """The partitions of `topics` that a choice selects."""
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


def lookup_times(limit: Limit, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The times to look up for a limit, in ms since 1970; none for a limit of offsets.

    Raises:
        InvalidOption: the limit names other partitions than these.
    """
    asked = limit.times_ms if isinstance(limit, AtTimes) else limit.offsets
    if not isinstance(asked, int) and set(asked) != set(partitions):
        raise InvalidOption(
            "offsets or times are required for exactly the partitions that are read; "
            f"missing: {_names(set(partitions) - set(asked))}; "
            f"not read: {_names(set(asked) - set(partitions))}"
        )
    if isinstance(limit, AtOffsets):
        return {}
    return {each: value_for(asked, each) for each in partitions}


def resolve_offsets(
    limit: Limit, bounds: BoundsByPartition, found: Mapping[TopicPartition, int | None]
) -> Offsets:
    """The offset of a limit in each partition of `bounds`.

    `found` are the offsets of `lookup_times`.

    Raises:
        InvalidOption: a partition has no record that late, and the limit requires one.
    """
    return {tp: _resolve(limit, tp, bounds[tp], found.get(tp)) for tp in bounds}


def _resolve(limit: Limit, tp: TopicPartition, bounds: OffsetBounds, found: int | None) -> int:
    if isinstance(limit, AtOffsets):
        named = value_for(limit.offsets, tp)
        return {EARLIEST: bounds.first, LATEST: bounds.end}.get(named, named)
    if found is None and not limit.or_latest:
        raise InvalidOption(
            f"{tp} has no record at time {value_for(limit.times_ms, tp)} ms or later; "
            "startingOffsetsByTimestampStrategy=latest starts at its end"
        )
    return bounds.end if found is None else found


def clip_range(asked: OffsetRange, bounds: OffsetBounds, losses: Losses) -> OffsetRange:
    """The part of a range that the log has.

    Raises:
        DataLost: a part is missing, and `losses` allows none.
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
