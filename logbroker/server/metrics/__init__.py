"""What a broker counts, and how Prometheus reads it."""
