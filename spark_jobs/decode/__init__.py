"""Record batches, as the log holds them, turned into columns; pure."""

from spark_jobs.decode.chunks import DecodedChunk, decode

__all__ = ["DecodedChunk", "decode"]
