"""The consumer group protocol: a state machine without I/O."""
