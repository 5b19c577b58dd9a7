"""Formats of the audit: marks on messages, reports in the topic `audit`, sets of numbers; pure."""
