"""The only door to the log: a stock Kafka client, so that it may be ours or Apache Kafka."""
