"""Publishes deleted records again, from the raw table to `delivery_archive`."""
