"""Tables that jobs derive from other tables: their files, and the commits that replace a day."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.record_files import row_groups
from spark_jobs.storage import TableStore, open_store
from spark_jobs.tables import Position, Snapshot, Table, open_table
from spark_jobs.tables.manifest import DataFile, Run

ROW_GROUP_BYTES: Final = 32 << 20
"""Bytes of Arrow arrays per row group; Spark's batches of 10,000 rows are too small for one."""

_WRITTEN: Final = pa.schema(
    [
        ("path", pa.string()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("date", pa.string()),
        ("time_min_ms", pa.int64()),
        ("time_max_ms", pa.int64()),
    ]
)


def write_files(
    rows: DataFrame,
    uri: str,
    run: Run,
    contract: StructType,
    *,
    time: str | None = None,
    date: str | None = None,
) -> tuple[DataFile, ...]:
    """Write rows to files in the folder of a run, one for each task that has rows.

    A returned file has the `date` and the bounds of the column `time`, if given. Files are
    invisible until they are committed; those of failed tasks are never committed.
    """
    schema = to_arrow_schema(contract, timezone="UTC")
    # Absolute: on executors a relative path would be another folder.
    store_uri, folder = open_store(uri).uri, run.folder

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Two attempts of a task may run at once; each writes a file of its own.
        path = f"{folder}/{uuid.uuid4().hex}.parquet"
        written = write_file(open_store(store_uri), path, schema, batches, time)
        yield pa.RecordBatch.from_pylist([{**each, "date": date} for each in written], _WRITTEN)

    written = rows.select(*contract.names).mapInArrow(write, from_arrow_schema(_WRITTEN))
    return tuple(DataFile(**row.asDict()) for row in written.collect())


def write_file(
    store: TableStore,
    path: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    time: str | None = None,
) -> list[dict[str, Any]]:
    """Write all rows to a file, durable on return; the fields of its `DataFile`.

    Without rows there is no file, and the list is empty.
    """
    batches = (batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    if first is None:
        return []
    fields: dict[str, Any] = {"path": path, "records": 0}
    with store.create(path) as stream:
        with pq.ParquetWriter(stream, schema, compression="zstd", store_schema=False) as writer:
            for rows in row_groups(_tables(chain([first], batches), schema), ROW_GROUP_BYTES):
                writer.write_table(rows, row_group_size=rows.num_rows)
                fields["records"] += rows.num_rows
                if time is not None:
                    fields |= _widen_bounds(fields, rows.column(time))
        fields["bytes"] = stream.tell()
    return [fields]


def _tables(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_arrays(batch.columns, schema=schema)


def _widen_bounds(fields: dict[str, Any], times: pa.ChunkedArray) -> dict[str, int]:
    bounds = pc.min_max(times.cast(pa.int64()))
    if not bounds["min"].is_valid:
        return {}
    # Rounded down to ms: readers skip a file by these bounds.
    least, greatest = bounds["min"].as_py() // 1_000, bounds["max"].as_py() // 1_000
    return {
        "time_min_ms": min(least, fields.get("time_min_ms", least)),
        "time_max_ms": max(greatest, fields.get("time_max_ms", greatest)),
    }


_DAY_MS: Final = 86_400_000
_JOB: Final = "job"
"""In the position of a table: the job that replaces its days."""


def quarantine_uri(uri: str) -> str:
    """The default URI of the quarantine for the table at `uri`."""
    return f"{uri.rstrip('/')}_quarantine"


def open_source(uri: str) -> tuple[Table, Snapshot]:
    """An input table and its current version.

    Raises:
        InvalidOption: nothing has been loaded into it.
    """
    table = open_table(uri)
    head = table.head()
    if head.version == 0:
        raise InvalidOption(f"table {uri} is empty; load records into it first")
    return table, head


def open_report(uri: str, kind: str) -> tuple[Table, Snapshot]:
    """The table of a job that replaces days, for writing.

    Raises:
        InvalidOption: it belongs to another job, whose days would be removed.
    """
    table = open_table(uri)
    head = table.head()
    if head.position and head.position.get(_JOB) != kind:
        raise InvalidOption(f"table {uri} belongs to another job; {kind} needs a table of its own")
    return table, head


def replace_day(
    rows: DataFrame,
    uri: str,
    contract: StructType,
    day: date,
    *,
    kind: str,
    position: Position,
    report: Mapping[str, Any],
) -> int:
    """Replace all rows of a day by `rows`, in one commit; the table's new version.

    Raises:
        InvalidOption: the table belongs to another job.
        RunSuperseded: another run has committed first; these rows are not visible.
    """
    table, base = open_report(uri, kind)
    run = table.new_run(kind)
    added = write_files(rows, uri, run, contract, date=day.isoformat())
    return table.commit(
        base,
        run=run,
        position={**position, _JOB: kind},
        added=added,
        removed=[file.path for file in base.files if file.date == day.isoformat()],
        report=report,
    )


def day_bounds_ms(day: date) -> tuple[int, int]:
    """The start of a day and of the next one, UTC, in ms since 1970."""
    start_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1_000)
    return start_ms, start_ms + _DAY_MS
