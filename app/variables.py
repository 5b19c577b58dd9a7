"""How the names of environment variables begin; without the settings, which take long to load."""

from typing import Final

PREFIX: Final = "REWIND_"

KAFKA_PREFIX: Final = "REWIND_KAFKA_"
"""What begins the variables whose rest is a property of the Kafka client, with `_` for its dots."""
