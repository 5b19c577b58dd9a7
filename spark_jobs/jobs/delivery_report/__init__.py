"""A day's deliveries, by webhook and hour: as a table, and as a page with plots."""
