"""Which days a report is asked for."""

from datetime import UTC, date, datetime

import pytest

from spark_jobs.cli.days import days_of
from spark_jobs.errors import InvalidOption

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


def day(number: int) -> datetime:
    return datetime(2026, 11, number)  # noqa: DTZ001  as click parses it


def test_without_a_day_it_is_the_last_one_that_is_over() -> None:
    assert days_of(None, None, None, NOW) == [date(2026, 2, 28)]


def test_a_day_is_named_by_itself() -> None:
    assert days_of(day(21), None, None, NOW) == [date(2026, 11, 21)]


def test_several_days_end_before_the_one_that_is_named_last() -> None:
    assert days_of(None, day(21), day(23), NOW) == [date(2026, 11, 21), date(2026, 11, 22)]


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
def test_contradictions_are_refused(
    single: datetime | None, first: datetime | None, end: datetime | None
) -> None:
    with pytest.raises(InvalidOption):
        days_of(single, first, end, NOW)
