"""Benchmarks: every performance claim, as a ratio to a baseline of the same run."""
