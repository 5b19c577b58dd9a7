"""Shared code of programs that use Kafka clients: properties, partitioner, raw batches, audit."""
