"""Reads the records of one key and window from a raw table, in the order of the log."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from logbroker.client.audit_format.mark import AUDIT_HEADER
from spark_jobs.contracts import RECORDS
from spark_jobs.jobs.execution import raise_task_errors
from spark_jobs.tables import DataFile, Snapshot, Table, read_files

EVENT_ID: Final = "event-id"

Header = tuple[str, bytes | None]


class RecordWindow(NamedTuple):
    """The records of one key in one partition of a topic, with times in `[start_ms, end_ms)`."""

    topic: str
    partition: int
    key: bytes
    start_ms: int
    end_ms: int

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the statistics of a file allow that it has some of the records."""
        return (
            file.topic in (None, self.topic)
            and file.partition in (None, self.partition)
            and (file.time_max_ms is None or file.time_max_ms >= self.start_ms)
            and (file.time_min_ms is None or file.time_min_ms < self.end_ms)
        )


class ArchivedRecord(NamedTuple):
    """A record as it was in the log."""

    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Sequence[Header]


def read_window(
    spark: SparkSession, table: Table, head: Snapshot, window: RecordWindow
) -> Iterator[ArchivedRecord]:
    """The records of a window in a version of a table.

    The driver holds one of Spark's partitions at a time.

    Raises:
        TasksFailed: Spark could not read them.
    """
    files = [each for each in head.files if window.may_be_in(each)]
    with raise_task_errors():
        for row in _sorted(read_files(spark, table, files, RECORDS), window).toLocalIterator():
            headers = [(each.key, _bytes(each.value)) for each in row.headers or ()]
            yield ArchivedRecord(row.offset, row.ms, _bytes(row.value), headers)


def _sorted(rows: DataFrame, window: RecordWindow) -> DataFrame:
    time = sql.col("timestamp")
    return (
        rows.where(
            (sql.col("topic") == window.topic)
            & (sql.col("partition") == window.partition)
            & (sql.col("key") == sql.to_binary(sql.lit(window.key.hex()), sql.lit("hex")))
            & (time >= sql.timestamp_millis(sql.lit(window.start_ms)))
            & (time < sql.timestamp_millis(sql.lit(window.end_ms)))
        )
        .select("offset", sql.unix_millis(time).alias("ms"), "value", "headers")
        .orderBy("offset")
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def archive_headers(record: ArchivedRecord, source: str) -> list[Header]:
    """The headers for publishing a record again; `source` is its topic and partition.

    The audit mark is removed, or the record would be counted again. A record without a usable event
    id gets its original place in the log as its id.
    """
    headers = [each for each in record.headers if each[0] != AUDIT_HEADER]
    # Readers use the last header of a name.
    if _is_usable(dict(headers).get(EVENT_ID)):
        return headers
    others = [each for each in headers if each[0] != EVENT_ID]
    return [*others, (EVENT_ID, f"{source}-{record.offset}".encode())]


def _is_usable(event_id: bytes | None) -> bool:
    """Whether an event id can be sent in an HTTP header unchanged."""
    text = (event_id or b"").decode("utf-8", "replace")
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()
