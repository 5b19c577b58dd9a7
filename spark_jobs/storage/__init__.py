"""Stores of tables: local folders, NFS and HDFS."""

from spark_jobs.storage.opening import open_store
from spark_jobs.storage.table_store import StoredFile, TableStore

__all__ = ["StoredFile", "TableStore", "open_store"]
