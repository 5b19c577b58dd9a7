"""Counters of a broker, and their export to Prometheus."""
