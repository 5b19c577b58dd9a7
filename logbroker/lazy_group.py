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
    """The location of the command, as `module:attribute`."""
    summary: str
    """The first sentence of its help, which the group's help shows."""


class LazyGroup(click.Group):
    """A command group that prints its help from a table, without importing its subcommands."""

    def __init__(
        self,
        *args: Any,
        lazy_commands: Mapping[str, LazyCommand],
        extra: str | None = None,
        **attributes: Any,
    ) -> None:
        """`extra` is the optional dependency group of the distribution that the commands need."""
        super().__init__(*args, **attributes)
        self._lazy_commands = lazy_commands
        self._extra = extra

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._lazy_commands)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand; None if the name is unknown."""
        if cmd_name not in self._lazy_commands:
            return None
        module, _, attribute = self._lazy_commands[cmd_name].target.partition(":")
        with imports_without_gc():
            command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand.

        Raises:
            ClickException: a package of `extra` is not installed.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if self._extra is None:
                raise
            raise click.ClickException(
                f"the package {error.name} is not installed;"
                f" install it with: pip install 'rewind[{self._extra}]'"
            ) from error

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with their summaries, each shortened to one line."""
        limit = formatter.width - 6 - max(map(len, self._lazy_commands))
        rows = [
            (name, click.Command(name, help=command.summary).get_short_help_str(limit))
            for name, command in self._lazy_commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@contextmanager
def imports_without_gc() -> Iterator[None]:
    """Disable cyclic garbage collection while many modules are imported.

    Nearly everything that an import creates lives until the process ends. Collections during
    imports took an eighth of a server's start time. Later collections skip the imported objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
