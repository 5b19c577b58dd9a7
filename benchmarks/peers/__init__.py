"""The comparison with other brokers: `python -m benchmarks.peers`."""
