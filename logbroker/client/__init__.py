"""What our programs use of Kafka clients: properties, partitioner, raw batches and audit marks."""
