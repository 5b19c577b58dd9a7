"""Looks up offsets in the log, and reads ranges of records as Arrow batches."""
