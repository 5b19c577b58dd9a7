"""The columns of the source as Spark has them: those of its Kafka connector, with its types."""

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


def schema(*, include_headers: bool) -> StructType:
    """What is read unless the user names a schema."""
    names = [name for name in TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name]) for name in names])


def columns_of(asked: StructType) -> tuple[str, ...]:
    """The columns of a schema, which may leave some out, in its order.

    Raises:
        InvalidOption: a column has another name or type, or may not be null.
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
