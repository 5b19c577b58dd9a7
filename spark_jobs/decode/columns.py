"""The columns that records are read into: those of Spark's Kafka connector, as Arrow has them."""

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
"""Every column that there is, in the connector's order; all may be null, as there."""


TIME_MS_MIN: Final = -62_135_596_800_000
TIME_MS_MAX: Final = 253_402_300_799_999
"""Of the years 1 to 9999, which Spark's timestamps and Python's are made for."""


def timestamps(times_ms: npt.NDArray[np.int64]) -> pa.Array:
    """Times in ms since 1970 as the column `timestamp`; of other years, the nearest time that fits.

    The log takes any number for a time. Many are too large for microseconds, and the rest would
    fail whoever reckons with them.
    """
    return pa.array(np.clip(times_ms, TIME_MS_MIN, TIME_MS_MAX) * 1_000).view(TYPES["timestamp"])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of batches with these columns, in this order."""
    return pa.schema([(name, TYPES[name]) for name in columns])
