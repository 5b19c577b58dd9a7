"""The table of settings says what the code says, row by row."""

import re

import click
from annotated_types import Ge, Le

from app.cli import main as rewind
from app.config import Settings
from app.variables import KAFKA_PREFIX, variable
from tests.unit.docs.doc_pages import page, shown, table

SETTINGS = table(page("service.md"), "## Settings")


def setting_default(name: str) -> str:
    field = Settings.model_fields[name]
    is_worked_out = field.default_factory is not None or variable(name).startswith(KAFKA_PREFIX)
    return "" if is_worked_out else shown(field.default)


def bounds(name: str) -> str:
    metadata = Settings.model_fields[name].metadata
    lowest = [shown(bound.ge) for bound in metadata if isinstance(bound, Ge)]
    highest = [shown(bound.le) for bound in metadata if isinstance(bound, Le)]
    return " to ".join(lowest + highest)


def test_every_setting_of_the_service_is_documented_with_its_default() -> None:
    documented = {row["variable"]: (row["default"], row["allowed"]) for row in SETTINGS}
    assert documented.keys() == {variable(name) for name in Settings.model_fields}
    for name in Settings.model_fields:
        default, allowed = documented[variable(name)]
        # The page describes a computed default in words.
        assert default == (setting_default(name) or default)
        assert allowed == (bounds(name) or allowed)


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by name."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def settings_of(command: click.Command) -> set[str]:
    """The variables that options of a command, or of any below it, stand in front of."""
    if isinstance(command, click.Group):
        return set().union(*map(settings_of, commands_of(command).values()))
    helps = [option.help or "" for option in command.params if isinstance(option, click.Option)]
    found = (re.search(r"\[env var: (REWIND_\w+)\]", text) for text in helps)
    return {match[1] for match in found if match}


def test_every_setting_with_an_option_is_documented_as_one() -> None:
    wanted = {name: settings_of(command) for name, command in commands_of(rewind).items()}
    assert "REWIND_DATABASE" in wanted["api"]
    documented: dict[str, set[str]] = {name: set() for name in wanted}
    for row in SETTINGS:
        for command in filter(None, row["option of"].split(", ")):
            documented[command].add(row["variable"])
    assert documented == wanted
