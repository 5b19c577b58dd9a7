"""The rules of the registry: its state, its log records, its operations; no I/O and no clock."""
