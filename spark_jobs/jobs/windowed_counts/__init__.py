"""Counts events per type and window of event time, continuously."""
