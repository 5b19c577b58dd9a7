"""Spark for whichever test runs a job."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from spark_session import running_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of this process: they carry `xdist_group("spark")`."""
    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
