"""Rules of a partition log: retention, accepted batches, idempotent producers; no I/O."""
