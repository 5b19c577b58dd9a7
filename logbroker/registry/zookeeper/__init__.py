"""The registry of a cluster, in ZooKeeper; the only package that imports kazoo for brokers."""
