"""Tables as Spark's data frames."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as Spark's documentation calls it
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.tables.manifest import DataFile
from spark_jobs.tables.table import Table, open_table

_log: Final = logging.getLogger(__name__)

_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
"""What Hadoop's paths mean by more than itself.

Spark has a switch for that, `__globPaths__`. With it, files whose paths have one of these are read
once for each file that is asked for.
"""

_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS: Final = "32"
"""Spark looks at each file first, in a task of its own: 15 s for 1 500 files, and 1.3 s so."""


def read_table(
    spark: SparkSession,
    uri: str,
    contract: StructType,
    *,
    topics: Collection[str] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
    version: int | None = None,
) -> DataFrame:
    """The rows of a table, with the columns of its contract, as of now or of a version.

    `topics` and the times [`start_ms`, `end_ms`) choose rows by the columns `topic` and
    `timestamp`, and files that cannot have such rows are not read. A column that a file does not
    have, since it was added later, is null. What is read stays what it was when this returned,
    whoever commits meanwhile, for as long as the table keeps old versions' files.

    Raises:
        InvalidOption: there is no such version, or its files are not kept any more; or the
            contract has no column for what is asked.
    """
    wanted = _Wanted(topics, start_ms, end_ms)
    wanted.require_columns(contract)
    table = open_table(uri)
    snapshot = table.readable(version)
    if snapshot.version == 0:
        # It may be a quarantine that nothing came into yet; or a typing error.
        _log.warning("nothing was ever committed to %s: it is read as empty", table.store.uri)
    files = filter(wanted.may_be_in, snapshot.files)
    return wanted.rows_of(read_files(spark, table, files, contract))


def read_files(
    spark: SparkSession, table: Table, files: Iterable[DataFile], contract: StructType
) -> DataFrame:
    """All rows of some of a table's files, with the columns of its contract."""
    urls = [_PATTERN.sub(r"\\\g<0>", table.store.url(file.path)) for file in files]
    if not urls:
        return spark.createDataFrame([], contract)
    with _few_tasks_to_list(spark):
        return spark.read.schema(contract).parquet(*urls)


@contextmanager
def _few_tasks_to_list(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_LISTING)
    assert before is not None
    spark.conf.set(_LISTING, _LISTING_TASKS)
    try:
        yield
    finally:
        spark.conf.set(_LISTING, before)


class _Wanted(NamedTuple):
    """Which rows are asked for; None where it does not matter."""

    topics: Collection[str] | None
    start_ms: int | None
    end_ms: int | None

    def require_columns(self, contract: StructType) -> None:
        columns = ("topic", "timestamp", "timestamp")
        for option, value, column in zip(self._fields, self, columns, strict=True):
            if value is not None and column not in contract.names:
                raise InvalidOption(f"{option} is {value!r}, and the table has no column {column}")

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the statistics of a file do not say that it has no such rows."""
        start_ms, end_ms = self.start_ms, self.end_ms
        return (
            (self.topics is None or file.topic is None or file.topic in self.topics)
            and (start_ms is None or file.time_max_ms is None or file.time_max_ms >= start_ms)
            and (end_ms is None or file.time_min_ms is None or file.time_min_ms < end_ms)
        )

    def rows_of(self, frame: DataFrame) -> DataFrame:
        """The rows, since files have others beside them."""
        if self.topics is not None:
            frame = frame.where(F.col("topic").isin(*self.topics))
        if self.start_ms is not None:
            frame = frame.where(F.col("timestamp") >= F.timestamp_millis(F.lit(self.start_ms)))
        if self.end_ms is not None:
            frame = frame.where(F.col("timestamp") < F.timestamp_millis(F.lit(self.end_ms)))
        return frame
