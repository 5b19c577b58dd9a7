"""Tables that jobs make of other tables: what each commit replaces, and what it names."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.storage import TableStore, open_store
from spark_jobs.tables import Position, Snapshot, Table, open_table
from spark_jobs.tables.manifest import DataFile, Run

ROW_GROUP_BYTES: Final = 32 << 20
"""Of Arrow's arrays: Spark hands over 10,000 rows at a time, too few for a row group."""

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
    """Write rows by a contract into the folder of a run, a file for each task that has any.

    Of each file it is told which `date` all rows have, and the bounds of their column `time`, if
    these are given. Nothing is visible before the files are committed; those of tasks that failed
    never are.
    """
    schema = to_arrow_schema(contract, timezone="UTC")
    # As the driver understands it: a relative path would be another folder where tasks run.
    place, folder = open_store(uri).uri, run.folder

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Two attempts at one task may run at once: what each writes is its own.
        path = f"{folder}/{uuid.uuid4().hex}.parquet"
        written = write_file(open_store(place), path, schema, batches, time)
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
    """Write a file of all rows, durable when this returns; what there is to tell of it.

    Without a row there is no file, and nothing to tell.
    """
    batches = (batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    if first is None:
        return []
    told: dict[str, Any] = {"path": path, "records": 0}
    with store.create(path) as stream:
        with pq.ParquetWriter(stream, schema, compression="zstd", store_schema=False) as writer:
            for rows in _row_groups(chain([first], batches), schema):
                writer.write_table(rows, row_group_size=rows.num_rows)
                told["records"] += rows.num_rows
                if time is not None:
                    told |= _widened(told, rows.column(time))
        told["bytes"] = stream.tell()
    return [told]


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        if sum(each.nbytes for each in waiting) >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _widened(told: dict[str, Any], times: pa.ChunkedArray) -> dict[str, int]:
    bounds = pc.min_max(times.cast(pa.int64()))
    if not bounds["min"].is_valid:
        return {}
    # Within the millisecond: readers that ask for a time must not be told that it is not here.
    least, greatest = bounds["min"].as_py() // 1_000, bounds["max"].as_py() // 1_000
    return {
        "time_min_ms": min(least, told.get("time_min_ms", least)),
        "time_max_ms": max(greatest, told.get("time_max_ms", greatest)),
    }


_JOB: Final = "job"
"""In the position of a table: which job replaces its days."""


def quarantine_of(uri: str) -> str:
    """Where a job keeps what it could not read, beside the table at a URI."""
    return f"{uri.rstrip('/')}_quarantine"


def open_source(uri: str) -> tuple[Table, Snapshot]:
    """A table that a job reads, and as what it reads it.

    Raises:
        InvalidOption: there is none.
    """
    table = open_table(uri)
    head = table.head()
    if head.version == 0:
        raise InvalidOption(f"table is {uri}, where none has been loaded yet")
    return table, head


def open_report(uri: str, kind: str) -> tuple[Table, Snapshot]:
    """The table of a job that replaces days, to be written to.

    Raises:
        InvalidOption: it is another job's, whose days would be removed.
    """
    table = open_table(uri)
    head = table.head()
    if head.position and head.position.get(_JOB) != kind:
        raise InvalidOption(f"table is {uri}, which another job keeps; {kind} needs one of its own")
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
    """Make rows all that a table has of a day, by one commit; the table's version.

    Raises:
        InvalidOption: the table is another job's.
        RunSuperseded: another run committed meanwhile; what was written is not seen.
    """
    table, base = open_report(uri, kind)
    run = table.new_run()
    added = write_files(rows, uri, run, contract, date=day.isoformat())
    return table.commit(
        base,
        kind=kind,
        run=run,
        position={**position, _JOB: kind},
        added=added,
        removed=[file.path for file in base.files if file.date == day.isoformat()],
        report=report,
    )
