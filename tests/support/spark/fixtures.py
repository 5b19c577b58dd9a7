"""The fixture of the Spark session."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One session for all tests of this process: they carry `xdist_group("spark")`."""
    # Imported here, because the import takes half a second.
    from tests.support.spark.spark_session import running_spark

    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
