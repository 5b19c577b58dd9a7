"""The `logbroker` command: one verb, one subcommand; stdout is data, stderr is talk."""

import atexit
import gc
from importlib import import_module
from typing import Final

import click

COMMANDS: Final = ("serve", "topics", "groups", "dump", "mirror", "registry", "audit")
"""Each is the function of its name in the module of its name."""


class _Commands(click.Group):
    """Loads a subcommand when it is asked for: a broker starts without what a mirror needs."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"logbroker.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rewind")
def main() -> None:
    """A log broker that speaks the Apache Kafka protocol and keeps its disk format."""
    # To look for garbage in all that was loaded takes a fifth of a short command's time.
    atexit.register(gc.freeze)
