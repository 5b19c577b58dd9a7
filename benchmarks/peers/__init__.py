"""The comparison with other brokers and webhook systems: `python -m benchmarks.peers`."""
