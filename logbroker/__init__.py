"""A log broker that speaks the Kafka protocol and keeps the Kafka log format."""
