"""Encodes and decodes record batches, Kafka's unit of storage and transfer; no I/O, no clock."""
