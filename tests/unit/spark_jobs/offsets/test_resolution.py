"""Resolution of limits to offsets, and losses of ranges."""

import re

import pytest

from logbroker.client.raw import EARLIEST, LATEST, TopicDescription, TopicPartition
from spark_jobs.errors import DataLost, InvalidOption
from spark_jobs.offsets.limits import Assigned, AtOffsets, AtTimes, Choice, Matching, Subscribed
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import (
    OffsetBounds,
    chosen_partitions,
    clip_range,
    lookup_times,
    resolve_offsets,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERNAL = TopicPartition("__a", 0)
TOPICS = {
    "a": TopicDescription("a", None, (0, 1), is_internal=False),
    "b": TopicDescription("b", None, (0,), is_internal=False),
    "__a": TopicDescription("__a", None, (0,), is_internal=True),
}
BOUNDS = {A0: OffsetBounds(3, 10), A1: OffsetBounds(0, 0)}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Subscribed(("a",)), {A0, A1}),
        (Subscribed(("b", "none")), {B0}),
        # Like Java's `find`, not `matches`, as in Spark's connector.
        (Matching(re.compile("a")), {A0, A1}),
        (Matching(re.compile("^[ab]$")), {A0, A1, B0}),
        (Assigned(frozenset((A1, B0, TopicPartition("b", 7)))), {A1, B0}),
    ],
)
def test_a_choice_selects_partitions(choice: Choice, expected: set[TopicPartition]) -> None:
    assert chosen_partitions(choice, TOPICS) == expected


def test_a_limit_has_one_value_or_one_per_partition() -> None:
    assert resolve_offsets(AtOffsets(EARLIEST), BOUNDS, {}) == {A0: 3, A1: 0}
    assert resolve_offsets(AtOffsets(LATEST), BOUNDS, {}) == {A0: 10, A1: 0}
    assert resolve_offsets(AtOffsets({A0: 7, A1: EARLIEST}), BOUNDS, {}) == {A0: 7, A1: 0}
    assert resolve_offsets(AtOffsets({A0: LATEST, A1: 5}), BOUNDS, {}) == {A0: 10, A1: 5}


def test_times_are_looked_up_and_offsets_are_not() -> None:
    assert lookup_times(AtTimes(1_000), BOUNDS) == {A0: 1_000, A1: 1_000}
    assert lookup_times(AtTimes({A0: 5, A1: 6}), BOUNDS) == {A0: 5, A1: 6}
    assert lookup_times(AtOffsets({A0: 5, A1: 6}), BOUNDS) == {}


def test_a_time_without_a_record_is_the_end_or_rejected() -> None:
    found = {A0: 4, A1: None}
    assert resolve_offsets(AtTimes(1_000), BOUNDS, found) == {A0: 4, A1: 0}
    with pytest.raises(InvalidOption, match=r"a-1 has no record at time 1000 ms.*=latest"):
        resolve_offsets(AtTimes(1_000, or_latest=False), BOUNDS, found)


@pytest.mark.parametrize("limit", [AtOffsets({A0: 1, B0: 1}), AtTimes({A0: 1, B0: 1})])
def test_a_limit_for_other_partitions_is_rejected(limit: AtOffsets | AtTimes) -> None:
    with pytest.raises(InvalidOption, match=r"missing: a-1; not read: b-0"):
        lookup_times(limit, BOUNDS)


@pytest.mark.parametrize(
    ("asked", "left", "lost"),
    [
        ((3, 10), (3, 10), None),
        ((5, 5), (5, 5), None),
        ((10, 10), (10, 10), None),
        ((1, 8), (3, 8), (1, 3)),
        ((0, 2), (2, 2), (0, 2)),
        ((8, 14), (8, 10), (10, 14)),
        ((12, 14), (12, 12), (12, 14)),
        # A start after the end of the log: the position of another log.
        ((12, 12), (12, 12), (12, 12)),
        ((8, 5), (8, 8), None),
        # An empty range loses nothing.
        ((1, 1), (1, 1), None),
    ],
)
def test_a_range_is_clipped_to_the_log(
    asked: tuple[int, int], left: tuple[int, int], lost: tuple[int, int] | None
) -> None:
    wanted = OffsetRange("a", 0, *asked)
    allowed = Losses(are_allowed=True)
    assert clip_range(wanted, BOUNDS[A0], allowed) == OffsetRange("a", 0, *left)
    assert allowed.offsets == (0 if lost is None else lost[1] - lost[0])
    strict = Losses(are_allowed=False)
    if lost is None:
        clip_range(wanted, BOUNDS[A0], strict)
    else:
        message = rf"a-0 \[{lost[0]}, {lost[1]}\).*offsets \[3, 10\).*failOnDataLoss"
        with pytest.raises(DataLost, match=message):
            clip_range(wanted, BOUNDS[A0], strict)
