"""A line of the log stays short however many partitions a mirror has."""

import pytest

from logbroker.mirror.held import Place
from logbroker.mirror.place_text import text_of


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([], ""),
        ([("clicks", 3)], "clicks-3"),
        ([("clicks", 2), ("clicks", 0), ("clicks", 1)], "clicks-0..2"),
        ([("clicks", 0), ("clicks", 2), ("clicks", 3)], "clicks-0,clicks-2..3"),
        ([("logs", 1), ("clicks", 0)], "clicks-0,logs-1"),
        ([("clicks-0", 1), ("clicks", 0)], "clicks-0,clicks-0-1"),
    ],
)
def test_partitions_that_follow_each_other_are_named_as_one(places: list[Place], text: str) -> None:
    assert text_of(places) == text
