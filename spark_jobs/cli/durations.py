"""Stretches of time on the command line, as Spark writes them: `10 minutes`."""

import re
from typing import Any, Final

import click

_UNITS_S: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,6}) *(second|minute|hour|day)s?")


class Duration(click.ParamType[int]):
    """Whole seconds, at least `least_s`."""

    name = "duration"

    def __init__(self, least_s: int) -> None:
        self._least_s = least_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The seconds of a text."""
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            self.fail(f"{value!r} is no duration, such as '10 minutes' or '30 seconds'", param, ctx)
        duration_s = int(found[1]) * _UNITS_S[found[2]]
        if duration_s < self._least_s:
            self.fail(f"{value!r} is less than {self._least_s} s", param, ctx)
        return duration_s

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What the help shows."""
        del param, ctx
        return "DURATION"
