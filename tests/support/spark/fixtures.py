"""The fixtures of the Spark session and of HDFS."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark.hdfs_server import HdfsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One session for all tests of this process: they carry `xdist_group("spark")`."""
    # Imported here, because the import takes half a second.
    from tests.support.spark.spark_session import running_spark

    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """One HDFS for all tests of this process, each with a folder of its own there."""
    with HdfsServer(tmp_path_factory.mktemp("hdfs")) as server:
        yield server
