"""The service's access to the log: the only package that imports a Kafka client."""
