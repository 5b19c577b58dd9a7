"""Partitions on disk: segments, indexes, producer state, recovery and retention; no network."""
