"""Spark's Kafka connector, which is not part of PySpark."""

from typing import Final

from pyspark.sql import SparkSession

from tests.support.processes.maven_jars import require_jars

JAVA_LEAST: Final = 17
_DEPENDENCIES: Final = (
    # The newest versions available.
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_NAME: Final = "spark-kafka-4.2.0"


def add_connector(spark: SparkSession) -> None:
    """Add the format `kafka` to a session; skips the test if Maven Central is unreachable."""
    # Other dependencies are in Spark.
    jars = require_jars(_NAME, _DEPENDENCIES, java_least=JAVA_LEAST, are_alone=True)
    for jar in sorted(jars.glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")
