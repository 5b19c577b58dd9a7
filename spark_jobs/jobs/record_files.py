"""Parquet files of the raw table, written by tasks in bounded row groups.

Compressed with zstd by default. Offsets and times are delta encoded and values are plain: a
dictionary would overflow. Statistics and page indexes exist for the columns that readers filter by.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from spark_jobs.contracts import RECORDS
from spark_jobs.storage import TableStore
from spark_jobs.tables.manifest import DataFile

ROW_GROUP_BYTES: Final = 64 << 20
"""Bytes of Arrow arrays per row group: readers hold that much for each column chunk."""

FILE_BYTES_MAX: Final = 1 << 30
"""As written; one row group may exceed it."""

SCHEMA: Final[pa.Schema] = to_arrow_schema(RECORDS, timezone="UTC")

_DIFFERENCES: Final = dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED")
_KEYS: Final = ["headers.list.element.key"]


class FileScope(NamedTuple):
    """What all records of a file have in common; None where they may differ."""

    topic: str
    partition: int | None
    date: str | None
    hour: int | None


class RecordFile:
    """A file that is being written; it is created with the first row group.

    `discard` deletes an open file.
    """

    def __init__(self, store: TableStore, path: str, scope: FileScope, codec: str) -> None:
        self._store = store
        self._path = path
        self._scope = scope
        self._codec = codec
        self._context = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._records = 0
        self._bounds: _Bounds | None = None
        self.waiting_bytes = 0
        """Bytes of rows that are not written yet."""
        self.written_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether the file has been created."""
        return self._writer is not None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add at least one row in the columns of `SCHEMA`; `flush` writes it."""
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        self._records += len(rows)
        self._bounds = _Bounds.of_rows(rows).union(self._bounds)

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if not self._waiting:
            return
        if self._writer is None:
            self._stream = self._context.enter_context(self._store.create(self._path))
            self._writer = open_writer(self._stream, SCHEMA, self._codec)
        table = pa.Table.from_batches(self._waiting, SCHEMA)
        self._waiting = []
        self.waiting_bytes = 0
        self._writer.write_table(table, row_group_size=len(table))
        self.written_bytes = self._stream.tell()

    def close(self) -> DataFile:
        """Write the waiting rows, and make the file durable."""
        self.flush()
        assert self._writer is not None, "a file without a row"
        assert self._bounds is not None
        self._writer.close()
        size = self._stream.tell()
        self._context.close()
        return DataFile(self._path, self._records, size, *self._scope, *self._bounds)

    def discard(self, error: BaseException) -> None:
        """Delete the file because of an error."""
        if self._writer is not None:
            # An open writer would write its footer when collected; the first error counts.
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
        self._context.__exit__(type(error), error, error.__traceback__)


def open_writer(stream: object, schema: pa.Schema, codec: str) -> pq.ParquetWriter:
    """A writer of a Parquet file of a pipeline table to an open stream."""
    plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
    filtered_by = [name for name in plain if not pa.types.is_binary(schema.field(name).type)]
    return pq.ParquetWriter(
        stream,
        schema,
        compression=codec,
        use_dictionary=[name for name in filtered_by if name not in _DIFFERENCES] + _KEYS,
        column_encoding={name: _DIFFERENCES[name] for name in filtered_by if name in _DIFFERENCES},
        write_statistics=filtered_by,
        write_page_index=True,
        # Spark's types are sufficient; Arrow's schema would only add bytes.
        store_schema=False,
    )


def row_groups(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Consecutive tables joined to row groups of at least `size` bytes of Arrow arrays."""
    waiting: list[pa.Table] = []
    for rows in tables:
        waiting.append(rows)
        if sum(each.nbytes for each in waiting) >= size:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


class _Bounds(NamedTuple):
    """Inclusive bounds of offsets and times."""

    offset_min: int
    offset_max: int
    time_min_ms: int
    time_max_ms: int

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch) -> "_Bounds":
        offsets = pc.min_max(rows["offset"])
        times = pc.min_max(rows["timestamp"].cast(pa.int64()))
        # Times in the log have ms resolution.
        return cls(
            offsets["min"].as_py(),
            offsets["max"].as_py(),
            times["min"].as_py() // 1_000,
            times["max"].as_py() // 1_000,
        )

    def union(self, other: "_Bounds | None") -> "_Bounds":
        if other is None:
            return self
        return _Bounds(
            min(self.offset_min, other.offset_min),
            max(self.offset_max, other.offset_max),
            min(self.time_min_ms, other.time_min_ms),
            max(self.time_max_ms, other.time_max_ms),
        )
