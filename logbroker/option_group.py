"""Groups of options that a command receives as one argument."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

Command = Callable[..., Any]


def option_group(
    parameter: str, group: type, *options: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """A decorator that adds options to a command and passes their values as one argument.

    `group` is a dataclass whose fields are named as the options' parameters.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> Any:
            members = {field.name: values.pop(field.name) for field in fields(group)}
            return command(**{parameter: group(**members)}, **values)

        decorated: Command = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
