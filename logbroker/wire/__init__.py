"""The Kafka protocol without I/O: bytes in, requests out, answers in order."""
