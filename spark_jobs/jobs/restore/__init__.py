"""Brings records back that the log has deleted: from the raw table into `delivery_archive`."""
