"""Partition logs on disk: segments, indexes, producer state, recovery, retention; no network."""
