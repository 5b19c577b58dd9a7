"""Options of commands for settings, and output: errors, exit codes, escaping.

The field `x` of `Settings` is the option `--x` and the variable `REWIND_X`.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from app.variables import PREFIX

if TYPE_CHECKING:
    from app.config import Settings

Command = TypeVar("Command", bound=Callable[..., None])

EXIT_FAILURE = 1
EXIT_USAGE = 2


def setting_options(**helps: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an option per setting. Options that are not given are None."""

    def decorate(command: Command) -> Command:
        for name, text in reversed(helps.items()):
            flag = f"--{name.replace('_', '-')}"
            variable = f"{PREFIX}{name.upper()}"
            command = click.option(flag, name, help=f"{text}  [env var: {variable}]")(command)
        return command

    return decorate


api_options = setting_options(
    api_url="URL of the API.",
    api_key="API key. Arguments are visible in `ps`; use the variable.",
    data_dir="Directory with operator.key, used without an API key. Default: .rewind.",
)


def load_settings(**overrides: object) -> "Settings":
    """Return the settings from options and environment. Ends the process if they are invalid."""
    # Importing Pydantic would slow down --help.
    from app.config import ConfigurationError, Settings

    try:
        settings = Settings.load(os.environ, **overrides)
        if settings.kafka_properties:
            # Commands without a log start faster without the Kafka client.
            from app.log.client import check_kafka_properties

            check_kafka_properties(settings.kafka_properties)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            click.echo(f"rewind: {line}", err=True)
        sys.exit(EXIT_USAGE)
    return settings


def exit_with_error(message: str) -> NoReturn:
    """Print a message on standard error and exit with code 1."""
    click.echo(f"rewind: {message}", err=True)
    sys.exit(EXIT_FAILURE)


def printable(text: str) -> str:
    """Replace control characters and line breaks of external text, for terminals."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
