"""Prefixes of environment variables, without the settings, whose import is slow."""

from typing import Final

PREFIX: Final = "REWIND_"

KAFKA_PREFIX: Final = "REWIND_KAFKA_"
"""The prefix of Kafka client properties, written with `_` instead of dots."""
