"""Reports a day's deliveries by webhook and hour, as a table and a page with plots."""
