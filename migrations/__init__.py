"""Versions of the database schema, applied in order by `rewind migrate`."""
