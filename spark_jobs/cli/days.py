"""Days on the command line: one, or several."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.days import yesterday

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DAY: Final = click.DateTime(["%Y-%m-%d"])


def day_options(command: _Command) -> _Command:
    """The options `day`, `first` and `end`, as `days_of` reads them."""
    for option in (
        click.option("--to", "end", type=_DAY, help="Several days: the one after the last."),
        click.option("--from", "first", type=_DAY, help="Several days: the first one."),
        click.option("--day", type=_DAY, help="The day, UTC.  [default: yesterday]"),
    ):
        command = option(command)
    return command


def days_of(
    day: datetime | None, first: datetime | None, end: datetime | None, now: datetime
) -> list[date]:
    """The days that the options name.

    Raises:
        InvalidOption: they contradict each other.
    """
    if first is None and end is None:
        return [yesterday(now) if day is None else day.date()]
    if day is not None or first is None or end is None:
        raise InvalidOption("either --day names the day, or --from and --to name the days")
    days = [(first + timedelta(days=each)).date() for each in range((end - first).days)]
    if not days:
        raise InvalidOption(f"--to is {end.date()}, which is not after --from, {first.date()}")
    return days


def days_in_words(days: Sequence[date]) -> str:
    """One day, or the first and the last of several."""
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]}"
