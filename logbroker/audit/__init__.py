"""Compares what producers report as published with what consumers report as received."""
