"""The columns that records are read into: those of Spark's Kafka connector, as Arrow types."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.decode.header_lists import HEADERS

TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""All columns in the connector's order; all are nullable, as in the connector."""


TIME_MS_MIN: Final = -62_135_596_800_000
TIME_MS_MAX: Final = 253_402_300_799_999
"""The bounds are the years 1 to 9999, the range of timestamps in Spark and Python."""


def timestamps(times_ms: npt.NDArray[np.int64]) -> pa.Array:
    """The column `timestamp` from ms since 1970, limited to the years 1 to 9999.

    The log accepts any number as a time. Some overflow in microseconds, and others are out of range
    for readers.
    """
    return pa.array(np.clip(times_ms, TIME_MS_MIN, TIME_MS_MAX) * 1_000).view(TYPES["timestamp"])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of batches with these columns, in this order."""
    return pa.schema([(name, TYPES[name]) for name in columns])
