"""The `rewind-jobs` command: one job, one subcommand; stdout is data, stderr is talk."""

import logging
from importlib import import_module
from typing import Final

import click

COMMANDS: Final = (
    "load",
    "compact",
    "decode",
    "audit",
    "delivery-report",
    "windowed-counts",
    "delivery-join",
    "restore",
)
"""Each is the function of its name, with `_` for `-`, in the module of that name."""


class _Commands(click.Group):
    """Loads a subcommand when it is asked for: help comes without Spark."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"spark_jobs.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rewind")
def main() -> None:
    """Spark jobs over the log: nightly loads, audits, reports, and restores."""
    logging.basicConfig(format="rewind-jobs: %(message)s")
