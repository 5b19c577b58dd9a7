"""Authorization: what a client may do with topics, groups and the cluster."""
