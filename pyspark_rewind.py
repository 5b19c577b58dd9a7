"""What Spark looks for in modules named `pyspark_...`: the data source `rewind`.

Spark loads all of these before any source in Python is used, whichever it is. So what this one
needs is loaded only once it is asked for.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The records of a log, of logbroker's or of Apache Kafka's; see `spark_jobs.source`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Refuse options that no read can have, before anything is planned."""
        super().__init__(options)
        from spark_jobs.source.options import read_source_options

        self._source = read_source_options(options)

    @classmethod
    def name(cls) -> str:
        """What `format(...)` names."""
        return "rewind"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka connector."""
        from spark_jobs.source.query import columns

        return columns.schema(include_headers=self._source.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch with these columns, which may be some of all."""
        from spark_jobs.source.batch import BatchReader
        from spark_jobs.source.options import read_batch_options
        from spark_jobs.source.query.columns import columns_of

        return BatchReader(self._source, read_batch_options(self.options), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For a stream with these columns, which may be some of all."""
        from spark_jobs.source.options import read_stream_options
        from spark_jobs.source.query.columns import columns_of
        from spark_jobs.source.stream import StreamReader

        return StreamReader(self._source, read_stream_options(self.options), columns_of(schema))
