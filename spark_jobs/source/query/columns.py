"""The columns of the source as Spark types: those of Spark's Kafka connector."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_jobs.contracts import HEADERS
from spark_jobs.errors import InvalidOption

TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def default_schema(*, include_headers: bool) -> StructType:
    """The columns that are read if the user gives no schema."""
    names = [name for name in TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name]) for name in names])


def column_names(asked: StructType) -> tuple[str, ...]:
    """The columns of a user's schema, in its order; it may omit some.

    Raises:
        InvalidOption: a column has another name or type, or is not nullable.
    """
    for field in asked.fields:
        if field.name not in TYPES or field.dataType != TYPES[field.name] or not field.nullable:
            allowed = ", ".join(f"{name} {kind.simpleString()}" for name, kind in TYPES.items())
            null = "" if field.nullable else " not null"
            raise InvalidOption(
                f"schema has {field.name} {field.dataType.simpleString()}{null}; "
                f"allowed are {allowed}"
            )
    return tuple(asked.fieldNames())
