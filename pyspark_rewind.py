"""The data source `rewind`, in a module named `pyspark_...`, as Spark requires.

Spark imports all such modules before it uses any Python source. So the dependencies of this one are
imported when it is used.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The records of a log on logbroker or Apache Kafka; see `spark_jobs.source`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Reject invalid options before anything is planned."""
        super().__init__(options)
        from spark_jobs.source.options import read_source_options

        self._source = read_source_options(options)

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "rewind"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka connector."""
        from spark_jobs.source.query import columns

        return columns.default_schema(include_headers=self._source.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of these columns, which may be a subset."""
        from spark_jobs.source.batch import BatchReader
        from spark_jobs.source.options import read_batch_options
        from spark_jobs.source.query.columns import column_names

        return BatchReader(self._source, read_batch_options(self.options), column_names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read of these columns, which may be a subset."""
        from spark_jobs.source.options import read_stream_options
        from spark_jobs.source.query.columns import column_names
        from spark_jobs.source.stream import StreamReader

        return StreamReader(self._source, read_stream_options(self.options), column_names(schema))
