"""Copies topics to another cluster, with their order, keys, headers and times, without loops."""
