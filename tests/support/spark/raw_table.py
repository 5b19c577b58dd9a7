"""Raw tables with given records."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark_jobs.contracts import RECORDS
from spark_jobs.jobs.derived_tables import write_file
from spark_jobs.tables import DataFile, open_table

_SCHEMA = to_arrow_schema(RECORDS, timezone="UTC")


class LoadedRecord(NamedTuple):
    """A record of partition 0."""

    topic: str
    offset: int
    time: datetime
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str] = {}

    def row(self) -> dict[str, Any]:
        """The row in the columns of the raw table."""
        headers = [{"key": name, "value": text.encode()} for name, text in self.headers.items()]
        return {
            **self._asdict(),
            "partition": 0,
            "timestamp": self.time,
            "timestampType": 0,
            "headers": headers or None,
            "date": self.time.date(),
            "hour": self.time.hour,
        }


def load_records(uri: str, records: Sequence[LoadedRecord]) -> int:
    """Commit records to the table as a load does; its version."""
    table = open_table(uri)
    base, run = table.head(), table.new_run("load")
    rows = [record.row() for record in records]
    columns = {name: [row.get(name) for row in rows] for name in _SCHEMA.names}
    batch = pa.RecordBatch.from_pydict(columns, _SCHEMA)
    path = f"{run.folder}/all.parquet"
    written = write_file(table.store, path, _SCHEMA, [batch], "timestamp")
    files = [DataFile(**each) for each in written]
    return table.commit(base, run=run, position={"load": run.id}, added=files)


def at(text: str, ms: int = 0) -> datetime:
    """The moment `2026-11-21T08:00:00`, UTC, and some milliseconds."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(milliseconds=ms)
