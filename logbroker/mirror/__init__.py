"""Copies topics to another cluster: order, keys, headers and times kept, never in a circle."""
