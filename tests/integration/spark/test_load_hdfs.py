"""Loads into a table on a real HDFS."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from logbroker.embedded import EmbeddedBroker
from spark_jobs.contracts import RECORDS
from spark_jobs.jobs.compact import compact
from spark_jobs.tables import open_table, read_table
from tests.support.spark.hdfs_server import TEST_TIMEOUT_S, HdfsServer
from tests.support.spark.loaded_table import LoadScene

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]


def test_a_table_on_hdfs_is_loaded_merged_and_read(
    spark: SparkSession, broker: EmbeddedBroker, hdfs: HdfsServer, tmp_path: Path
) -> None:
    scene = LoadScene(broker.bootstrap_servers, tmp_path)
    scene.make_topic()
    uri = f"{hdfs.uri}/lake/orders"
    for count in (3_000, 500):
        scene.publish(count)
        assert scene.load(spark, table=uri).records == count
    assert scene.load(spark, table=uri).version is None
    before = open_table(uri).head().files
    report = compact(uri, lambda: spark)
    assert (report.version, report.merged) == (3, len(before))
    rows = read_table(spark, uri, RECORDS).select(
        "topic",
        "partition",
        "offset",
        sql.unix_millis("timestamp").alias("time"),
        *("key", "value", "headers"),
    )
    found = {
        (
            *row[:4],
            *(None if field is None else bytes(field) for field in row[4:6]),
            None if row.headers is None else tuple((h.key, h.value) for h in row.headers),
        )
        for row in rows.collect()
    }
    assert found == set(scene.log_records())
