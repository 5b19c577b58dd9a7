"""Options that select one day or several."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import click

from logbroker.option_group import option_group
from spark_jobs.errors import InvalidOption

_DAY: Final = click.DateTime(["%Y-%m-%d"])


@dataclass(frozen=True, slots=True)
class DayOptions:
    """A single day, or the days `[first, end)`, UTC."""

    day: datetime | None
    first: datetime | None
    end: datetime | None

    def dates(self, now: datetime) -> list[date]:
        """The selected days; yesterday if none is.

        Raises:
            InvalidOption: the options contradict each other.
        """
        if self.first is None and self.end is None:
            return [(self.day or now - timedelta(days=1)).date()]
        if self.day is not None or self.first is None or self.end is None:
            raise InvalidOption("allowed are --day alone, or --from and --to together")
        count = (self.end - self.first).days
        if count <= 0:
            raise InvalidOption(
                f"--to is {self.end.date()}; allowed are days after --from, {self.first.date()}"
            )
        return [(self.first + timedelta(days=each)).date() for each in range(count)]


day_options = option_group(
    "days",
    DayOptions,
    click.option("--day", type=_DAY, help="The day, UTC.  [default: yesterday]"),
    click.option("--from", "first", type=_DAY, help="The first of several days."),
    click.option("--to", "end", type=_DAY, help="The day after the last of several days."),
)


def format_days(days: Sequence[date]) -> str:
    """One day, or the first and the last of several."""
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]}"
