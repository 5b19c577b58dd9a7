"""Tables as Spark data frames."""

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
"""Special characters in Hadoop's paths.

Spark's switch `__globPaths__` is no alternative: files whose paths have such a character would be
read once for each requested file.
"""

_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS: Final = "32"
"""Spark checks each file in a task first: 1,500 files take 15 s by default, and 1.3 s with this."""


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
    """The rows of a table at its current or an earlier version, with the columns of its contract.

    `topics` and the times [`start_ms`, `end_ms`) select rows by the columns `topic` and
    `timestamp`, and files without such rows are not read. A column that was added later is null in
    older files. The result does not change with later commits, as long as the files of its version
    are kept.

    Raises:
        InvalidOption: the version does not exist or its files were deleted, or the contract lacks
            a column for a selection.
    """
    wanted = _RowSelection(topics, start_ms, end_ms)
    wanted.require_columns(contract)
    table = open_table(uri)
    snapshot = table.readable_snapshot(version)
    if snapshot.version == 0:
        # It may be a quarantine that is still empty, or a misspelt URI.
        _log.warning("table %s has no commits: it is read as empty", table.store.uri)
    files = filter(wanted.may_be_in, snapshot.files)
    return wanted.rows_of(read_files(spark, table, files, contract))


def read_files(
    spark: SparkSession, table: Table, files: Iterable[DataFile], contract: StructType
) -> DataFrame:
    """All rows of some files of a table, with the columns of its contract."""
    urls = [_PATTERN.sub(r"\\\g<0>", table.store.url(file.path)) for file in files]
    if not urls:
        return spark.createDataFrame([], contract)
    with _limited_listing_tasks(spark):
        return spark.read.schema(contract).parquet(*urls)


@contextmanager
def _limited_listing_tasks(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_LISTING)
    assert before is not None
    spark.conf.set(_LISTING, _LISTING_TASKS)
    try:
        yield
    finally:
        spark.conf.set(_LISTING, before)


class _RowSelection(NamedTuple):
    """The selection of rows; None for no restriction."""

    topics: Collection[str] | None
    start_ms: int | None
    end_ms: int | None

    def require_columns(self, contract: StructType) -> None:
        columns = ("topic", "timestamp", "timestamp")
        for option, value, column in zip(self._fields, self, columns, strict=True):
            if value is not None and column not in contract.names:
                raise InvalidOption(f"{option} is {value!r}, but the table has no column {column}")

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the statistics of a file allow that it has selected rows."""
        start_ms, end_ms = self.start_ms, self.end_ms
        return (
            (self.topics is None or file.topic is None or file.topic in self.topics)
            and (start_ms is None or file.time_max_ms is None or file.time_max_ms >= start_ms)
            and (end_ms is None or file.time_min_ms is None or file.time_min_ms < end_ms)
        )

    def rows_of(self, frame: DataFrame) -> DataFrame:
        """The selected rows; files also have others."""
        if self.topics is not None:
            frame = frame.where(F.col("topic").isin(*self.topics))
        if self.start_ms is not None:
            frame = frame.where(F.col("timestamp") >= F.timestamp_millis(F.lit(self.start_ms)))
        if self.end_ms is not None:
            frame = frame.where(F.col("timestamp") < F.timestamp_millis(F.lit(self.end_ms)))
        return frame
