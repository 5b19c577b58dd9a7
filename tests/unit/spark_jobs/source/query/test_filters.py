"""Filters narrow ranges without losing records."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from logbroker.client.raw import TopicPartition
from spark_jobs.offsets.ranges import OffsetRange
from spark_jobs.source.query.filters import parse_filters

RANGES = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 50, 60), OffsetRange("b", 0, 10, 20)]
TIME = datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC)
TIME_MS = 1_795_262_400_123


def left(*filters: Filter) -> list[tuple[str, int, int, int]]:
    ranges = parse_filters(filters).narrow(RANGES, {})
    return [(each.topic, each.partition, each.start, each.end) for each in ranges if each.size > 0]


def test_partitions_and_topics_are_filtered() -> None:
    assert left(EqualTo(("partition",), 1)) == [("a", 1, 50, 60)]
    assert left(EqualTo(("topic",), "b")) == [("b", 0, 10, 20)]
    assert left(In(("partition",), (1, 2)), EqualNullSafe(("topic",), "b")) == []
    assert left(GreaterThan(("partition",), 0)) == [("a", 1, 50, 60)]


def test_offsets_are_narrowed() -> None:
    assert left(GreaterThanOrEqual(("offset",), 55), LessThanOrEqual(("offset",), 70)) == [
        ("a", 0, 55, 71),
        ("a", 1, 55, 60),
    ]
    assert left(In(("offset",), (15, 18)), EqualTo(("topic",), "b")) == [("b", 0, 15, 19)]


def test_only_a_minimum_time_is_looked_up() -> None:
    earlier = datetime(2026, 1, 1, tzinfo=UTC)
    narrow = parse_filters(
        [GreaterThan(("timestamp",), TIME), GreaterThan(("timestamp",), earlier)]
    )
    lookup_times = narrow.lookup_times(RANGES)
    topic_partitions = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    assert lookup_times == dict.fromkeys(topic_partitions, TIME_MS)
    found: dict[TopicPartition, int | None] = {
        topic_partitions[0]: 30,
        topic_partitions[1]: None,
        topic_partitions[2]: 3,
    }
    ranges = narrow.narrow(RANGES, found)
    assert [(each.start, each.end) for each in ranges if each.size > 0] == [(30, 100), (10, 20)]
    assert parse_filters([LessThan(("timestamp",), TIME)]).lookup_times(RANGES) == {}


@pytest.mark.parametrize(
    "useless",
    [
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("partition",), "1"),
        In(("offset",), (50, None)),
        EqualTo(("timestamp",), TIME.replace(tzinfo=None)),
        # For brokers, negative times are the first and the last offset.
        GreaterThan(("timestamp",), datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_unusable_filters_are_ignored(useless: Filter) -> None:
    narrow = parse_filters([useless])
    assert narrow.lookup_times(RANGES) == {}
    assert narrow.narrow(RANGES, {}) == RANGES


OPERATORS: dict[type[Any], Any] = {
    EqualTo: lambda column, value: column == value,
    GreaterThan: lambda column, value: column > value,
    GreaterThanOrEqual: lambda column, value: column >= value,
    LessThan: lambda column, value: column < value,
    LessThanOrEqual: lambda column, value: column <= value,
    In: lambda column, value: column in value,
}


@given(st.data())
def test_no_passing_record_is_omitted(data: st.DataObject) -> None:
    numbers = st.integers(-5, 110)
    filters = []
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(list(OPERATORS)))
        column = data.draw(st.sampled_from(["partition", "offset"]))
        value = data.draw(st.tuples(numbers, numbers) if kind is In else numbers)
        filters.append((kind, column, value))
    kept = parse_filters([kind((column,), value) for kind, column, value in filters]).narrow(
        RANGES, {}
    )
    read = {(each.topic, each.partition, at) for each in kept for at in range(each.start, each.end)}
    for each in RANGES:
        for at in range(each.start, each.end):
            row = {"partition": each.partition, "offset": at}
            if all(OPERATORS[kind](row[column], value) for kind, column, value in filters):
                assert (each.topic, each.partition, at) in read
