"""Tables of Parquet files that runs add to as a whole or not at all."""

from spark_jobs.tables.manifest import Commit, DataFile, Position, Run, Snapshot
from spark_jobs.tables.orphans import Collected
from spark_jobs.tables.reading import read_files, read_table
from spark_jobs.tables.table import Table, open_table

__all__ = [
    "Collected",
    "Commit",
    "DataFile",
    "Position",
    "Run",
    "Snapshot",
    "Table",
    "open_table",
    "read_files",
    "read_table",
]
