"""Decodes record batches of the log into columns. Pure."""

from spark_jobs.decode.batch_table import UnreadableBatch
from spark_jobs.decode.chunks import DecodedChunk, decode

__all__ = ["DecodedChunk", "UnreadableBatch", "decode"]
