"""Files with a property in each line, such as Kafka's programs read."""

from pathlib import Path

from logbroker.errors import ConfigurationError


def read_property_file(option: str, path: Path) -> dict[str, str]:
    """Read a file of properties that `option` names, without validation.

    A line is `name=value`; empty lines and lines that start with `#` are ignored.

    Raises:
        ConfigurationError: the file cannot be read, or one line for each malformed line.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option} is {str(path)!r}; cannot read it: {error}") from error
    properties: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        name, separator, value = (part.strip() for part in line.partition("="))
        if not line or line.startswith("#"):
            continue
        if not separator or not name:
            # The line is not shown: it may be a password without its name.
            problems.append(f"line {number} is malformed; expected NAME=VALUE")
        properties[name] = value
    if problems:
        raise ConfigurationError("\n".join(f"{option} {path}: {each}" for each in problems))
    return properties
