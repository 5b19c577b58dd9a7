"""Which offsets of the log to read: choices, limits, ranges and losses. Pure."""
