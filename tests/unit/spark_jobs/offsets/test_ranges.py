"""Splitting of offset ranges among tasks."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.offsets.ranges import OffsetRange, split_ranges

RANGES = st.lists(
    st.tuples(st.integers(0, 1_000), st.integers(0, 5_000)).map(lambda it: (it[0], sum(it))),
    max_size=6,
).map(lambda ends: [OffsetRange("t", at, *each) for at, each in enumerate(ends)])


def test_each_nonempty_partition_is_a_task() -> None:
    ranges = [OffsetRange("t", 1, 5, 9), OffsetRange("t", 2, 4, 4), OffsetRange("t", 0, 0, 3)]
    assert split_ranges(ranges) == [OffsetRange("t", 0, 0, 3), OffsetRange("t", 1, 5, 9)]


def test_a_range_that_ends_before_its_start_is_omitted() -> None:
    assert split_ranges([OffsetRange("t", 0, 9, 3)]) == []


def test_large_ranges_are_split_in_proportion() -> None:
    ranges = [
        OffsetRange("t", 0, 0, 10),
        OffsetRange("t", 1, 0, 1_000),
        OffsetRange("t", 2, 0, 500),
    ]
    # 10 of 1,510 are less than half a part; the other 5 parts are shared 3.33 : 1.67.
    sizes = [(each.partition, each.size) for each in split_ranges(ranges, min_partitions=6)]
    assert sizes == [(0, 10), (1, 333), (1, 333), (1, 334), (2, 250), (2, 250)]


def test_half_a_part_is_rounded_up() -> None:
    ranges = [OffsetRange("t", 0, 0, 50), OffsetRange("t", 1, 0, 50)]
    assert len(split_ranges(ranges, min_partitions=5)) == 6


def test_parts_are_even_and_within_the_limit() -> None:
    sizes = [each.size for each in split_ranges([OffsetRange("t", 0, 7, 17)], max_records=4)]
    assert sizes == [3, 3, 4]


def test_ranges_are_split_by_size_and_then_by_number() -> None:
    ranges = [OffsetRange("t", 0, 0, 100)]
    assert len(split_ranges(ranges, max_records=50, min_partitions=2)) == 2
    assert len(split_ranges(ranges, max_records=50, min_partitions=8)) == 8


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 900))
def test_tasks_cover_each_offset_once(
    ranges: list[OffsetRange], least: int | None, most: int | None
) -> None:
    pieces = split_ranges(ranges, min_partitions=least, max_records=most)
    assert all(each.size > 0 for each in pieces)
    assert most is None or all(each.size <= most for each in pieces)
    joined: dict[int, tuple[int, int]] = {}
    for each in pieces:
        start, end = joined.get(each.partition, (each.start, each.start))
        assert each.start == end
        joined[each.partition] = (start, each.end)
    assert joined == {each.partition: (each.start, each.end) for each in ranges if each.size}


def test_a_range_can_be_pickled_and_printed() -> None:
    one = OffsetRange("t", 3, 5, 9)
    assert pickle.loads(pickle.dumps(one)) == one
    assert str(one) == "t-3 [5, 9)"
    with pytest.raises(AttributeError):
        one.start = 6  # type: ignore[misc]
