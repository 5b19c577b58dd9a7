"""The registry of a cluster of brokers, in ZooKeeper; the layout is Kafka's and the paper's."""
