"""Record batches, as the log holds them, turned into columns; pure."""

from spark_jobs.decode.batch_table import UnreadableBatch
from spark_jobs.decode.chunks import DecodedChunk, decode

__all__ = ["DecodedChunk", "UnreadableBatch", "decode"]
