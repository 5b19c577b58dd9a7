"""Measures a running webhook system: live deliveries, and how it brings what was missed."""
