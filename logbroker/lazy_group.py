"""A command group that imports the module of a subcommand when that subcommand is called."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click


class LazyCommand(NamedTuple):
    """A subcommand that is not imported yet."""

    target: str
    """Where it is, as `module:attribute`."""
    summary: str
    """The first sentence of its help, which the help of the group shows."""


class LazyGroup(click.Group):
    """A group that prints its help from a table, without importing any of its subcommands."""

    def __init__(
        self, *args: Any, lazy_commands: Mapping[str, LazyCommand], **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._lazy_commands = lazy_commands

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self._lazy_commands)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand of a name; None where there is none."""
        if cmd_name not in self._lazy_commands:
            return None
        module, _, attribute = self._lazy_commands[cmd_name].target.partition(":")
        with imports_without_gc():
            command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with their summaries, shortened to one line each as click does it."""
        limit = formatter.width - 6 - max(map(len, self._lazy_commands))
        rows = [
            (name, click.Command(name, help=command.summary).get_short_help_str(limit))
            for name, command in self._lazy_commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@contextmanager
def imports_without_gc() -> Iterator[None]:
    """Import many modules without searches for cyclic garbage.

    Nearly all that an import makes stays until the process ends, and the searches through it took
    an eighth of the time in which a server starts. Later searches skip what was imported.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
