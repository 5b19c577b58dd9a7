"""The jars of Spark's own Kafka connector, fetched by Maven and cached."""

from pathlib import Path
from typing import Final

from benchmarks.maven_jars import JarsUnavailable, fetch_jars

VERSION: Final = "4.2.0"
"""The newest version on Maven Central that works with Spark 4.3."""

JARS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""Spark contains their other dependencies."""


def connector_jars() -> list[Path]:
    """Return the jars; none if Maven is missing or cannot download them."""
    try:
        folder = fetch_jars(f"kafka-connector-{VERSION}", JARS, are_alone=True)
    except JarsUnavailable:
        return []
    return sorted(folder.glob("*.jar"))
