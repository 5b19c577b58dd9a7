"""Selection of days on the command line."""

from datetime import UTC, date, datetime

import pytest

from spark_jobs.cli.days import DayOptions
from spark_jobs.errors import InvalidOption

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


def day(number: int) -> datetime:
    return datetime(2026, 11, number)  # noqa: DTZ001  as click parses it


def test_the_default_is_yesterday() -> None:
    assert DayOptions(None, None, None).dates(NOW) == [date(2026, 2, 28)]


def test_a_single_day_is_selected() -> None:
    assert DayOptions(day(21), None, None).dates(NOW) == [date(2026, 11, 21)]


def test_a_range_excludes_its_end() -> None:
    days = [date(2026, 11, 21), date(2026, 11, 22)]
    assert DayOptions(None, day(21), day(23)).dates(NOW) == days


@pytest.mark.parametrize(
    ("single", "first", "end"),
    [
        (day(21), day(21), day(22)),
        (day(21), None, day(22)),
        (None, day(21), None),
        (None, None, day(21)),
        (None, day(21), day(21)),
        (None, day(21), day(20)),
    ],
)
def test_contradictions_are_rejected(
    single: datetime | None, first: datetime | None, end: datetime | None
) -> None:
    with pytest.raises(InvalidOption):
        DayOptions(single, first, end).dates(NOW)
