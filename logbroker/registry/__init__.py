"""Which topics, brokers and producer ids exist: the cluster metadata."""
