"""Options that name a file of properties for a command's Kafka clients."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from logbroker.client.properties import PropertyRules

CLIENT_CONFIG: Final = click.Path(path_type=Path, exists=True, dir_okay=False)


def read_client_config(option: str, path: Path | None, rules: "PropertyRules") -> dict[str, str]:
    """Return the validated properties of the file that `option` names; none without a file.

    Raises:
        ConfigurationError: the file cannot be read, or one line for each problem in it.
    """
    if path is None:
        return {}
    from logbroker.client.properties import read_properties

    return read_properties(option, path, rules)
