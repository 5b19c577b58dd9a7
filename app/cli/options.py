"""Settings as command-line options: the field `x` of `Settings` is `--x` and `REWIND_X`."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from app.variables import PREFIX

if TYPE_CHECKING:
    from app.config import Settings

Command = TypeVar("Command", bound=Callable[..., None])

EXIT_REFUSED = 1
EXIT_MISUSED = 2


def setting_options(**helps: str) -> Callable[[Command], Command]:
    """Options for the named settings, each with its help; what is not given stays None."""

    def decorate(command: Command) -> Command:
        for name, text in reversed(helps.items()):
            flag = f"--{name.replace('_', '-')}"
            variable = f"{PREFIX}{name.upper()}"
            command = click.option(flag, name, help=f"{text}  [env var: {variable}]")(command)
        return command

    return decorate


api_options = setting_options(
    api_url="Where the API is.",
    api_key="A key to it; the variable keeps it from other users, who see what runs.",
    data_dir="Folder whose operator.key is shown where no key is given; .rewind where absent.",
)


def load_settings(**overrides: object) -> "Settings":
    """The settings of the environment with the options in front; ends the process if refused."""
    # They load Pydantic, which the help of a command does not need.
    from app.config import ConfigurationError, Settings

    try:
        settings = Settings.load(os.environ, **overrides)
        if settings.kafka_properties:
            # Commands that reach no log start without its client.
            from app.log.client import check_kafka_properties

            check_kafka_properties(settings.kafka_properties)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            click.echo(f"rewind: {line}", err=True)
        sys.exit(EXIT_MISUSED)
    return settings


def refuse(message: str) -> NoReturn:
    """Say why on standard error and end with exit code 1."""
    click.echo(f"rewind: {message}", err=True)
    sys.exit(EXIT_REFUSED)


def printable(text: str) -> str:
    """`text` with a mark for what a terminal would take for a command, a new line included."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
