"""The columns: Spark's names for their types, and Arrow's."""

import pickle

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_rewind import DefaultSource
from spark_jobs.decode.columns import arrow_schema
from spark_jobs.errors import InvalidOption
from spark_jobs.source.query.columns import column_names, default_schema

OPTIONS = {"kafka.bootstrap.servers": "log:9092", "subscribe": "t"}


@pytest.mark.parametrize("include_headers", [False, True])
def test_batches_have_the_types_that_spark_expects_of_the_schema(include_headers: bool) -> None:
    whole = default_schema(include_headers=include_headers)
    expected = to_arrow_schema(whole, timezone="UTC")
    # The very comparison that Spark makes of the first batch.
    assert expected.equals(arrow_schema(column_names(whole)))
    assert ("headers" in whole.names) == include_headers


def test_a_schema_may_have_less_in_another_order() -> None:
    asked = StructType(
        [default_schema(include_headers=True)[name] for name in ("headers", "offset")]
    )
    assert column_names(asked) == ("headers", "offset")
    assert to_arrow_schema(asked, timezone="UTC").equals(arrow_schema(("headers", "offset")))


@pytest.mark.parametrize(
    "field",
    [
        StructField("size", LongType()),
        StructField("Offset", LongType()),
        StructField("offset", StringType()),
        StructField("offset", LongType(), nullable=False),
    ],
)
def test_other_columns_are_refused_with_those_that_there_are(field: StructField) -> None:
    with pytest.raises(InvalidOption, match=r"schema has .ffset|schema has size") as refusal:
        column_names(StructType([field]))
    assert "allowed are key binary, value binary, topic string, partition int" in str(refusal.value)


def test_readers_travel_to_tasks_and_look_to_spark_as_if_they_pushed_nothing() -> None:
    reader = DefaultSource(OPTIONS).reader(default_schema(include_headers=False))
    copy = pickle.loads(pickle.dumps(reader))
    # What Spark compares before it refuses filters while it is told not to push any.
    assert copy.pushFilters.__func__ is DataSourceReader.pushFilters
    assert copy.pushFilters([]) == []
    stream = DefaultSource(OPTIONS).streamReader(default_schema(include_headers=False))
    pickle.loads(pickle.dumps(stream)).stop()
