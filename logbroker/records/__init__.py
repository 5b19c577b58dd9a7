"""The record batch, Kafka's unit of storage and of transfer: bytes alone, no file and no clock."""
