"""The source's columns as Spark and Arrow types."""

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
def test_arrow_types_match_spark_types(include_headers: bool) -> None:
    whole = default_schema(include_headers=include_headers)
    expected = to_arrow_schema(whole, timezone="UTC")
    # The same comparison as Spark's for the first batch.
    assert expected.equals(arrow_schema(column_names(whole)))
    assert ("headers" in whole.names) == include_headers


def test_a_schema_may_be_a_reordered_subset() -> None:
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
def test_other_columns_are_rejected_with_the_allowed_ones(field: StructField) -> None:
    with pytest.raises(InvalidOption, match=r"schema has .ffset|schema has size") as raised:
        column_names(StructType([field]))
    assert "allowed are key binary, value binary, topic string, partition int" in str(raised.value)


def test_readers_can_be_pickled_and_hide_filter_pushdown() -> None:
    reader = DefaultSource(OPTIONS).reader(default_schema(include_headers=False))
    copy = pickle.loads(pickle.dumps(reader))
    # Spark's check when filter pushdown is disabled.
    assert copy.pushFilters.__func__ is DataSourceReader.pushFilters
    assert copy.pushFilters([]) == []
    stream = DefaultSource(OPTIONS).streamReader(default_schema(include_headers=False))
    pickle.loads(pickle.dumps(stream)).stop()
