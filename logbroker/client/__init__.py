"""What a producer or consumer of the log needs besides a stock Kafka client."""
