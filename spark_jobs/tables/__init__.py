"""Tables of Parquet files with atomic commits."""

from spark_jobs.tables.manifest import Commit, DataFile, Position, Run, Snapshot
from spark_jobs.tables.orphans import DeletedOrphans
from spark_jobs.tables.reading import read_files, read_table
from spark_jobs.tables.table import Table, open_table

__all__ = [
    "Commit",
    "DataFile",
    "DeletedOrphans",
    "Position",
    "Run",
    "Snapshot",
    "Table",
    "open_table",
    "read_files",
    "read_table",
]
