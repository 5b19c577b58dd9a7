"""How a job says no: a line on standard error for each reason, and an exit code."""

import sys
from typing import Final, NoReturn

import click

REFUSED: Final = 1
MISUSED: Final = 2


def refuse(reasons: object, exit_code: int = REFUSED) -> NoReturn:
    """Tell the reasons, one a line, and end."""
    for line in str(reasons).splitlines():
        click.echo(f"rewind-jobs: {line}", err=True)
    sys.exit(exit_code)
