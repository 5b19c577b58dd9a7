"""Compaction: merges the small files of each topic, date and hour in a commit of its own.

Every load adds a file for each partition and hour, however few the records; late records add more.
Readers use the small files until the commit and the merged ones afterwards. Replaced files are
kept for a while, for readers that started earlier.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.errors import CorruptTable
from spark_jobs.jobs.defaults import ORPHANS_S, SMALL_BYTES
from spark_jobs.jobs.execution import run_in_tasks
from spark_jobs.jobs.merges import Merge, plan_merges
from spark_jobs.jobs.record_files import ROW_GROUP_BYTES, open_writer, row_groups
from spark_jobs.storage import TableStore, open_store
from spark_jobs.tables import DataFile, DeletedOrphans, Snapshot, open_table

KIND: Final = "compact"
CODEC: Final = "zstd"


@dataclass(frozen=True)
class CompactReport:
    """The result of a successful compaction."""

    run: str
    merged: int
    """The number of replaced files."""

    added: Sequence[DataFile]
    """The files that replace them."""

    orphans: DeletedOrphans
    seconds: float
    version: int | None
    """The committed version; None if there was nothing to merge."""


@dataclass(frozen=True)
class _MergeTask:
    """The input of all tasks of a run."""

    table: str
    folder: str
    merges: Sequence[Merge]


def compact(
    uri: str,
    session: Callable[[], SparkSession],
    *,
    small_bytes: int = SMALL_BYTES,
    orphans_older_than_s: float = ORPHANS_S,
) -> CompactReport:
    """Merge files below `small_bytes`, and delete orphaned files.

    `session` is called only if there is something to merge.

    Raises:
        RunSuperseded: another compaction removed the same files first; nothing was changed.
        CorruptTable: a file has another number of records than the table states.
        StorageFailed, TasksFailed: nothing was changed; run it again.
    """
    began = time.monotonic()
    table = open_table(uri)
    run = table.new_run(KIND)
    base = table.head()
    merges = plan_merges(base.files, small_bytes=small_bytes)
    removed = [file.path for merge in merges for file in merge.files]
    # Absolute: on executors a relative path would be another folder.
    added = _run_tasks(_MergeTask(table.store.uri, run.folder, merges), session)
    version = None
    if merges:
        version = table.commit(
            base,
            run=run,
            position=None,
            added=added,
            removed=removed,
            report={"merged": len(removed), "files": len(added)},
            may_rebase=lambda head: _has_all(head, removed),
        )
    orphans = table.delete_orphans(orphans_older_than_s)
    return CompactReport(run.id, len(removed), added, orphans, time.monotonic() - began, version)


def report_json(report: CompactReport) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "version": report.version,
        "run": report.run,
        "merged": report.merged,
        "files": len(report.added),
        "fileBytes": sum(file.bytes for file in report.added),
        "records": sum(file.records for file in report.added),
        "collected": report.orphans._asdict(),
        "seconds": round(report.seconds, 3),
    }


def report_lines(report: CompactReport, uri: str) -> Iterator[str]:
    """The report as text."""
    if report.version is None:
        yield f"nothing to merge: {uri} has at most one small file per topic, date and hour"
    else:
        yield (
            f"merged {report.merged} files into {len(report.added)} in {report.seconds:.1f} s; "
            f"{uri} is at version {report.version}"
        )
    runs, files, size = report.orphans
    if files:
        yield f"deleted {files} files ({size} bytes) of {runs} runs that no version needs"


def _has_all(head: Snapshot, paths: Sequence[str]) -> bool:
    return {file.path for file in head.files}.issuperset(paths)


def _run_tasks(task: _MergeTask, session: Callable[[], SparkSession]) -> list[DataFile]:
    if not task.merges:
        return []

    def merge(index: int) -> str:
        return json.dumps(merge_files(open_store(task.table), task.folder, task.merges[index]))

    return [
        DataFile(*json.loads(text)) for text in run_in_tasks(session(), len(task.merges), merge)
    ]


class _Piece(NamedTuple):
    """The rows of one partition in a file; all rows if the partition is None."""

    partition: int | None
    offset: int
    """The offset of the first row."""

    file: DataFile


def merge_files(store: TableStore, folder: str, merge: Merge) -> DataFile:
    """Write the rows of several files to one, by partition and offset.

    Holds a row group or two in memory, and each file as it is stored: small files may be large once
    decompressed.

    Raises:
        CorruptTable: a file has another number of records than the table states.
    """
    path = f"{folder}/merged-{uuid.uuid4().hex}.parquet"
    schema = pa.unify_schemas([pq.read_schema(_source(store, file)) for file in merge.files])
    with store.create(path) as stream:
        with open_writer(stream, schema, CODEC) as writer:
            for rows in _row_groups(store, merge, schema):
                writer.write_table(rows, row_group_size=len(rows))
        size = stream.tell()
    return merge.merged._replace(path=path, bytes=size)


def _row_groups(store: TableStore, merge: Merge, schema: pa.Schema) -> Iterator[pa.Table]:
    pieces = [piece for file in merge.files for piece in _pieces(store, file)]
    if all(piece.partition is not None for piece in pieces):
        pieces.sort()
    tables = chain.from_iterable(_rows(store, piece, schema) for piece in pieces)
    return row_groups(tables, ROW_GROUP_BYTES)


def _pieces(store: TableStore, file: DataFile) -> Iterator[_Piece]:
    """The pieces of a file: a merged file has one for each partition."""
    has_one = file.partition is not None or file.offset_min is None
    if has_one or "partition" not in pq.read_schema(_source(store, file)).names:
        yield _Piece(file.partition, file.offset_min or 0, file)
        return
    positions = pq.read_table(_source(store, file), columns=["partition", "offset"])
    firsts = positions.group_by("partition").aggregate([("offset", "min")])
    for row in firsts.to_pylist():
        yield _Piece(row["partition"], row["offset_min"], file)


def _rows(store: TableStore, piece: _Piece, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a piece, one row group at a time, without empty ones."""
    file = piece.file
    stored = pq.ParquetFile(_source(store, file))
    count = stored.metadata.num_rows
    if count != file.records:
        raise CorruptTable(
            f"{store.url(file.path)} has {count} records, but the table states {file.records}"
        )
    for group in range(stored.num_row_groups):
        rows = stored.read_row_group(group)
        if file.partition is None and piece.partition is not None:
            rows = rows.filter(pc.field("partition") == piece.partition)
        if len(rows):
            yield _completed(rows, schema)


def _completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with null columns where the file lacks a column of the schema."""
    for field in schema:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def _source(store: TableStore, file: DataFile) -> pa.BufferReader:
    return pa.BufferReader(store.read(file.path))
