"""The size of a micro-batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.raw import TopicPartition
from spark_jobs.errors import DataLost
from spark_jobs.offsets.admission import TriggerDelay, limit_ends, ranges_between
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import OffsetBounds

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_the_limit_is_shared_in_proportion() -> None:
    assert limit_ends(100, {A: 0, B: 50}, {A: 300, B: 150}) == {A: 75, B: 75}


def test_a_small_partition_gets_an_offset_and_an_empty_one_none() -> None:
    assert limit_ends(10, {A: 0, B: 0, C: 4}, {A: 1_000, B: 1, C: 4}) == {A: 9, B: 1, C: 4}


def test_everything_below_the_limit_is_admitted() -> None:
    assert limit_ends(100, {A: 0, B: 5}, {A: 10, B: 7}) == {A: 10, B: 7}


def test_a_truncated_partition_keeps_its_end() -> None:
    assert limit_ends(10, {A: 50, B: 0}, {A: 20, B: 40}) == {A: 20, B: 10}


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 900)), max_size=8), st.integers(1, 99)
)
def test_every_batch_is_nonempty_and_near_the_limit(
    partitions: list[tuple[int, int]], most: int
) -> None:
    starts = {TopicPartition("t", at): start for at, (start, _) in enumerate(partitions)}
    ends = {TopicPartition("t", at): sum(each) for at, each in enumerate(partitions)}
    taken = limit_ends(most, starts, ends)
    assert all(starts[tp] <= end <= ends[tp] for tp, end in taken.items())
    count = sum(taken[tp] - starts[tp] for tp in taken)
    assert count <= most + len(partitions)
    assert (count > 0) == any(size for _, size in partitions)


def test_a_batch_is_delayed_unless_first_or_full_or_overdue() -> None:
    pace = TriggerDelay(least=100, delay_s=60)
    assert pace.admits(1, now_s=5.0)
    assert not pace.admits(99, now_s=64.0)
    assert pace.admits(100, now_s=64.5)
    assert not pace.admits(99, now_s=124.0)
    assert pace.admits(1, now_s=124.5)


BOUNDS = {A: OffsetBounds(0, 100), B: OffsetBounds(10, 100)}


def between(
    starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], losses: Losses
) -> list[tuple[int, int, int]]:
    ranges = ranges_between(starts, ends, BOUNDS, losses)
    return [(each.partition, each.start, each.end) for each in ranges]


def test_new_partitions_are_read_from_their_first_record() -> None:
    strict = Losses(are_allowed=False)
    assert between({B: 20}, {A: 7, B: 30}, strict) == [(0, 0, 7), (1, 20, 30)]


def test_a_partition_without_an_end_is_read_by_the_next_micro_batch() -> None:
    strict = Losses(are_allowed=False)
    assert between({A: 0, B: 10}, {A: 7}, strict) == [(0, 0, 7)]


@pytest.mark.parametrize(
    ("starts", "ends", "left", "lost"),
    [
        ({A: 0}, {A: 5, B: 30}, [(0, 0, 5), (1, 10, 30)], OffsetRange("t", 1, 0, 10)),
        ({A: 0, B: 5}, {A: 5, B: 30}, [(0, 0, 5), (1, 10, 30)], OffsetRange("t", 1, 5, 10)),
        ({A: 0, B: 20}, {A: 120, B: 20}, [(0, 0, 100), (1, 20, 20)], OffsetRange("t", 0, 100, 120)),
        ({A: 0, C: 9}, {A: 5, C: 12}, [(0, 0, 5)], OffsetRange("t", 2, 9, 12)),
        ({A: 0, C: 9}, {A: 5}, [(0, 0, 5)], None),
        ({A: 0, B: 40}, {A: 5, B: 30}, [(0, 0, 5)], None),
    ],
)
def test_missing_offsets_are_an_error_or_skipped(
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    left: list[tuple[int, int, int]],
    lost: OffsetRange | None,
) -> None:
    allowed = Losses(are_allowed=True)
    assert between(starts, ends, allowed) == left
    assert allowed.ranges == ([] if lost is None else [lost])
    with pytest.raises(DataLost):
        between(starts, ends, Losses(are_allowed=False))
