"""Defaults and choices that the help of commands shows; without Spark and Arrow."""

from typing import Final

RECORDS_MAX: Final = 10_000_000
"""Of a task of a load: what is done again when one fails, and at most what a range's files have."""

CODECS: Final = ("zstd", "snappy", "gzip", "none")
"""Of Parquet files."""

SMALL_BYTES: Final = 32 << 20
"""Files below this size are merged."""

ORPHANS_S: Final = 2 * 86_400.0
"""Longer than any run takes; one that is alive after all is refused its commit."""
