"""Counts of events per type and window of event time, while they come."""
