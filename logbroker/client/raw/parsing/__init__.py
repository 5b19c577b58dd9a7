"""Parses broker responses and client properties; pure."""
