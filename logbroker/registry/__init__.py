"""Cluster metadata: brokers, topics, coordinators and stored consumer groups."""
