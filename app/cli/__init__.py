"""The `rewind` command: one verb, one subcommand; stdout is data, stderr is talk."""

import atexit
import gc
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

COMMANDS: Final[Mapping[str, str]] = {
    "up": "up",
    "demo": "demo",
    "api": "servers",
    "worker": "servers",
    "live": "servers",
    "replay": "replay",
    "replays": "replays",
    "publish": "publish",
    "listen": "listen",
    "migrate": "migrate",
    "keys": "keys",
}
"""The module that each command is in, as the function of its name."""


class _Commands(click.Group):
    """Loads a subcommand when it is asked for: a worker starts without what the others need."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"app.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rewind")
def main() -> None:
    """Replay-as-a-service over a log: webhooks that were missed are delivered again."""
    # To look for garbage in all that was loaded takes a fifth of a short command's time.
    atexit.register(gc.freeze)
