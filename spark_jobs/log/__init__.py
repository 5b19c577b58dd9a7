"""The pipeline's door to the log: which offsets there are, and their records as Arrow batches."""
