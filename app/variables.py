"""Names of environment variables, without the settings, whose import is slow."""

from typing import Final

PREFIX: Final = "REWIND_"

KAFKA_PREFIX: Final = "REWIND_KAFKA_"
"""The prefix of Kafka client properties, written with `_` instead of dots."""


def variable(setting: str) -> str:
    """Return the variable of a setting."""
    return (
        f"{KAFKA_PREFIX}<PROPERTY>" if setting == "kafka_properties" else PREFIX + setting.upper()
    )


def kafka_variable(name: str) -> str:
    """Return the variable of a Kafka client property."""
    return KAFKA_PREFIX + name.upper().replace(".", "_")
