"""Defaults and choices that help texts show; imports neither Spark nor Arrow."""

from typing import Final

RECORDS_MAX: Final = 10_000_000
"""Records per task of a load: what a retry repeats, and what the files of a range hold at most."""

CODECS: Final = ("zstd", "snappy", "gzip", "none")
"""Compression codecs of Parquet files."""

SMALL_BYTES: Final = 32 << 20
"""Files below this size are merged."""

ORPHANS_S: Final = 2 * 86_400.0
"""Longer than any run takes; a run that is still alive after this cannot commit."""
